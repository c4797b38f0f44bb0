"""Book each payment exactly once, while worker processes are killed with kill -9.

    python examples/exactly_once.py [DATABASE_URL]

The worker writes a booking and acks the payment in one transaction, so the database keeps both or none. The database is
a new SQLite file, or that of a URL: psycopg3://me@localhost/app, mysql://me@localhost/app (MariaDB). The program drops
its tables when it ends. Its exit status is 1 if a booking is missing or made twice.
"""

import logging
import multiprocessing
import random
import sys
import tempfile
import time

import peewee as pw
from playhouse.db_url import connect

import xq

PAYMENTS, WORKERS, KILLS = 300, 2, 6
if len(sys.argv) < 2:
    sys.argv.append(f"sqlite:///{tempfile.mkdtemp(prefix='xq-exactly-once-')}/app.db?timeout=30")
db = connect(sys.argv[1])  # the worker processes have the same arguments


class Payment(xq.Task):
    cents = pw.IntegerField()

    class Meta:
        database = db
        table_name = "exactly_once_payment"


class Booking(pw.Model):
    payment = pw.IntegerField()  # not unique: a payment that is made twice has two

    class Meta:
        database = db
        table_name = "exactly_once_booking"


xq.upgrade(Payment, features={"delayed": True, "buried": True, "keep": True, "ttr": 60})


@Payment.xq.worker(max_attempts=20)
def pay(payment: Payment) -> None:
    with db.atomic():
        Booking.create(payment=payment.id)
        time.sleep(random.uniform(0, 0.02))  # if the worker is killed here, the database undoes the booking
        payment.ack()


def work() -> None:
    logging.basicConfig()  # warnings and errors only
    pay.run()


def run() -> bool:
    """Pay all, and kill workers meanwhile. Return whether each payment has one booking."""
    Payment.xq.put_many({"cents": random.randint(1, 999)} for _ in range(PAYMENTS))
    spawn = multiprocessing.get_context("spawn")
    workers: list[multiprocessing.process.BaseProcess] = []
    for kill in range(1, KILLS + 1):
        while len(workers) < WORKERS:
            workers.append(spawn.Process(target=work, daemon=True))
            workers[-1].start()
        while Payment.xq.count("done") < PAYMENTS * kill // KILLS:
            time.sleep(0.01)
        workers.pop(0).kill()  # kill -9
    for worker in workers:
        worker.terminate()
        worker.join()
    again = Payment.select().where(Payment.attempts > 1).count()
    print(f"{KILLS} workers were killed. {PAYMENTS} payments are done; {again} of them were taken again after a kill.")
    booked = [booking.payment for booking in Booking.select().order_by(Booking.payment)]
    once = booked == [payment.id for payment in Payment.select().order_by(Payment.id)]
    print("Each payment has one booking." if once else "WRONG: a payment has no booking, or several.")
    return once


if __name__ == "__main__":
    db.create_tables([Payment, Booking], safe=False)  # an error if another run has them
    try:
        sys.exit(0 if run() else 1)
    finally:
        Payment.xq.uninstall()
        db.drop_tables([Payment, Booking])
        db.close()
