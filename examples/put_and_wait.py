"""Requests that wait for their answers, which two other processes compute and write into the row of the question.

put(wait=) returns as soon as the task has ended, and tells whether it was processed. Answered questions stay for a
minute (zombie), so that whoever asked can read the answer.
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
    answer = pw.TextField(null=True)  # or why there is none
    status = pw.CharField(max_length=1, default="R")
    runat = pw.DoubleField(null=True)  # until when an answer is kept

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
    """What a worker does, until it is terminated: it sleeps in take while there is nothing to do."""
    db.init(path)
    while question := questions.take(timeout=None):
        try:
            answer = " x ".join(map(str, factors(int(question.number))))
        except ValueError as error:
            questions.bury(question, update={"answer": str(error)})
        else:
            questions.ack(question, update={"answer": answer})


def ask(number: str) -> str:
    """One request, in a thread and on a connection of its own."""
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

    print("Nobody waits any more:", questions.waiting())
    print("What happened:", questions.stats(pretty=True).transition)
    print("All of it is in", path)
    db.close()


if __name__ == "__main__":
    main()
