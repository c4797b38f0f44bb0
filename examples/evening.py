"""An evening in a shop: three queues in one file, two that fail in bursts, and a hanging worker.

    python evening.py --tasks 200000     fills evening.db in this folder, and says how to go on

docs/operations.md finds and mends what is wrong. What it mends in the functions, MENDED=1 in the environment does here.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import peewee as pw

import xq

MENDED = bool(os.environ.get("MENDED"))
SECONDS = 0.002  # of the work on a mail or an order
FEATURES: xq.Features = {"delayed": True, "buried": True, "ttr": 60, "history": True}

db = pw.SqliteDatabase("evening.db", timeout=30, pragmas={"synchronous": "normal"})


class Image(xq.Task):
    path = pw.TextField()

    class Meta:
        database = db


class Mail(xq.Task):
    to = pw.TextField()

    class Meta:
        database = db


class Order(xq.Task):
    partner = pw.TextField()
    price = pw.TextField()

    class Meta:
        database = db


images = xq.upgrade(Image, features=FEATURES)
mails = xq.upgrade(Mail, fields={"tube": "tube"}, features=FEATURES)
orders = xq.upgrade(Order, fields={"tube": "tube"}, features={**FEATURES, "keep": True})


@images.worker(workers=2)
def resize(image: Image) -> None:
    if image.path.endswith(".tif") and not MENDED:
        threading.Event().wait()  # the library does not return


@mails.worker(workers=2, max_attempts=2, backoff=[1])
def send(mail: Mail) -> None:
    """Send a mail. For an hour, the provider of newsletters does not answer."""
    time.sleep(SECONDS)
    if mail.tube == "newsletter" and not MENDED:
        raise TimeoutError(f"10.0.0.{mail.id % 5} did not answer after {mail.id % 7 + 30} s")


@orders.worker(workers=2, max_attempts=2, backoff=[1])
def book(order: Order) -> None:
    """Book an order. One partner writes decimal commas."""
    time.sleep(SECONDS)
    float(order.price.replace(",", ".") if MENDED else order.price)


def fill(n: int) -> None:
    """Put `n` tasks: three in ten are orders, one in ten is an image, the others are mails."""

    def order(i: int) -> dict[str, str]:
        is_acme = i % 1_000 < 60  # in bursts
        price = f"{i % 300 + 10}{',' if is_acme else '.'}50"
        return {"partner": "acme" if is_acme else f"partner {i % 7}", "price": price, "tube": "web"}

    def mail(i: int) -> dict[str, str]:
        is_news = i % 2_000 < 150
        return {"to": f"customer{i}@example.org", "tube": "newsletter" if is_news else "receipt"}

    def image(i: int) -> dict[str, str]:
        return {"path": f"/photos/{i}.{'tif' if i % 10_000 in (40, 50) else 'jpg'}"}

    for queue, made, share in ((orders, order, 3), (images, image, 1), (mails, mail, 6)):
        tasks: Iterator[dict[str, str]] = map(made, range(n * share // 10))
        while batch := list(islice(tasks, 1_000)):
            queue.put_many(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=2_000)
    n = parser.parse_args().tasks
    db.create_tables([Image, Mail, Order])
    fill(n)
    numbers = [f"{queue.count():,} of {queue.name}" for queue in (images, mails, orders)]
    print(f"{n:,} tasks are in evening.db: {', '.join(numbers)}")
    print(f"export PYTHONPATH={Path(__file__).parent}     # where xq finds this program")
    print("xq worker evening:resize              # works on the images, and hangs: MENDED=1 xq worker evening:resize")
    print("xq worker evening:send evening:book")
    print("xq stats sqlite:///evening.db         # shows all three queues")


if __name__ == "__main__":
    main()
