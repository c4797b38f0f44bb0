"""Put questions and wait for their answers. Two worker processes write the answer into the row of the question.

put(wait=) returns when the task has ended, and says whether it was acked. Answered questions stay for a minute
(zombie), so the caller can read the answer.
"""

import multiprocessing
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import peewee as pw

import xq

PATIENCE = 30  # seconds that a request waits for its answer
WORKERS = 2

db = pw.SqliteDatabase(None, timeout=30)


class Question(pw.Model):
    number = pw.TextField()
    answer = pw.TextField(null=True)  # or the error
    status = pw.CharField(max_length=1, default="R")
    runat = pw.DoubleField(null=True)  # until when the answer stays

    class Meta:
        database = db


questions = xq.upgrade(Question, fields={"status": "status", "runat": "runat"}, features={"zombie": 60, "buried": True})


def factors(number: int) -> list[int]:
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


def work(path: str) -> None:
    """Answer questions until the process is terminated. Without a task, take sleeps."""
    db.init(path)
    while question := questions.take(timeout=None):
        try:
            answer = " x ".join(map(str, factors(int(question.number))))
        except ValueError as error:
            questions.bury(question, update={"answer": str(error)})
        else:
            questions.ack(question, update={"answer": answer})


def ask(number: str) -> str:
    """Return the answer to one question. Each call runs in its own thread, with its own connection."""
    with db.connection_context():
        question, processed = questions.put({"number": number}, wait=PATIENCE)
    return f"{number} = {question.answer}" if processed else f"{number} has no answer: {question.answer}"


def main() -> None:
    path = str(Path(tempfile.mkdtemp(prefix="xq-questions-")) / "questions.db")
    db.init(path)
    db.create_tables([Question])

    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=work, args=(path,)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    with ThreadPoolExecutor() as requests:
        for answer in requests.map(ask, ["391", "65537", "1001", "many", "600851475143"]):
            print(answer)
    for worker in workers:
        worker.terminate()
        worker.join()

    print("Waiters left:", questions.waiting())
    print("Transitions:", questions.stats(pretty=True).transition)
    print("The database is", path)
    db.close()


if __name__ == "__main__":
    main()
