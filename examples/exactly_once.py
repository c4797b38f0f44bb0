"""Write each result exactly once, while worker processes are killed with kill -9.

    python examples/exactly_once.py [DATABASE_URL]

Each task is a payment to an account. The worker raises the balance and writes a booking. It acks the payment in the
same transaction, so the database keeps all three or none. The program kills workers at random and starts others. At the
end each payment has one booking, and the balances are exact. The exit status is 1 if they are not.

The database is a new SQLite file, or that of a URL: psycopg3://me@localhost/app, mysql://me@localhost/app (MariaDB).
The tables of this program are dropped when it ends.
"""

import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable

import peewee as pw
from playhouse.db_url import connect

import xq

PAYMENTS, ACCOUNTS, WORKERS, KILLS = 300, 5, 2, 6
PATIENCE = 120  # seconds until the program fails

db = pw.DatabaseProxy()


class Base(pw.Model):
    id = pw.AutoField()

    class Meta:
        database = db
        table_function = lambda model: f"exactly_once_{model.__name__.lower()}"  # noqa: E731


class Account(Base):
    balance = pw.IntegerField(default=0)


class Payment(Base):
    account = pw.ForeignKeyField(Account)
    account_id: int  # made by the field above
    cents = pw.IntegerField()
    status = pw.CharField(max_length=1, default="R")
    attempts = pw.IntegerField(default=0)  # the number of its takes


class Booking(Base):
    payment = pw.ForeignKeyField(Payment)


TABLES = [Account, Payment, Booking]
payments = xq.upgrade(Payment, fields={"status": "status", "attempts": "attempts"}, features={"keep": True})


@payments.worker
def pay(payment: Payment) -> None:
    time.sleep(random.uniform(0, 0.01))  # work before the writes
    with db.atomic():
        Account.update(balance=Account.balance + payment.cents).where(Account.id == payment.account_id).execute()
        Booking.create(payment=payment)
        time.sleep(random.uniform(0, 0.01))  # if the worker is killed here, the database undoes both writes
        payments.ack(payment)


def work(url: str) -> None:
    """Work off payments until the process is terminated or killed."""
    db.initialize(connect(url))
    payments.run()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"The payments are not done after {PATIENCE} seconds: {payments.stats().counts}")
        time.sleep(0.01)


def done() -> int:
    return payments.stats().counts["D"]


def run(url: str) -> bool:
    accounts = [Account.create() for _ in range(ACCOUNTS)]
    payments.put_many([{"account": random.choice(accounts), "cents": random.randint(1, 999)} for _ in range(PAYMENTS)])
    spawn = multiprocessing.get_context("spawn")

    def start() -> multiprocessing.process.BaseProcess:
        process = spawn.Process(target=work, args=(url,))
        process.start()
        return process

    workers = [start() for _ in range(WORKERS)]
    try:
        for kill in range(1, KILLS + 1):
            until(lambda: done() >= kill * PAYMENTS // (KILLS + 1))  # noqa: B023 - it is called at once
            time.sleep(random.uniform(0, 0.02))
            victim = workers.pop(random.randrange(WORKERS))
            victim.kill()  # kill -9
            workers.append(start())
        until(lambda: done() == PAYMENTS)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return check()


def check() -> bool:
    """Compare the bookings and the balances with the payments, and print what was found."""
    again = Payment.select().where(Payment.attempts > 1).count()
    print(f"{KILLS} workers were killed. {PAYMENTS} payments were taken; {again} of them again after a kill.")
    bookings = Counter(booking.payment.id for booking in Booking.select(Booking, Payment).join(Payment))
    owed: Counter[int] = Counter()
    for payment in Payment.select(Payment, Account).join(Account):
        owed[payment.account.id] += payment.cents
    checks = {
        "every payment is done": done() == PAYMENTS,
        "every payment has one booking": list(bookings.values()) == [1] * PAYMENTS,
        "every balance is the sum of its payments": all(row.balance == owed[row.id] for row in Account.select()),
    }
    for what, holds in checks.items():
        print("holds" if holds else "FAILS", what)
    return all(checks.values())


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="xq-exactly-once-", ignore_cleanup_errors=True) as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/payments.db?timeout=30"
        db.initialize(connect(url))
        if any(db.table_exists(table) for table in TABLES):
            sys.exit("The tables of this program are there already: another run is using them, or was killed.")
        try:
            db.create_tables(TABLES)
            return 0 if run(url) else 1
        finally:
            payments.uninstall()
            db.drop_tables(TABLES)
            db.close()


if __name__ == "__main__":
    sys.exit(main())
