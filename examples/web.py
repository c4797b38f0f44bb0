"""Put tasks in an endpoint of FastAPI, and run their workers in the same process: in threads, and in the event loop.

It needs `pip install fastapi uvicorn`. `python examples/web.py --serve` serves until Ctrl-C, as `uvicorn web:app` does
in this folder. Without --serve the program posts two orders to itself, waits until their tasks are done, and sends
itself a Ctrl-C.
"""

import asyncio
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.request import urlopen

import peewee as pw
import uvicorn
from fastapi import FastAPI

import xq

logging.basicConfig(level="INFO")  # what the workers do
db = pw.SqliteDatabase(tempfile.mkdtemp(prefix="xq-web-") + "/app.db")


class Order(pw.Model):
    name = pw.TextField()

    class Meta:
        database = db


class Mail(xq.Task):
    to = pw.TextField()

    class Meta:
        database = db


class Parcel(Mail):  # a table of its own, with the same fields
    pass


for model in (Mail, Parcel):
    xq.upgrade(model, features={"delayed": True, "buried": True, "keep": True, "ttr": 60})


@Mail.xq.worker(workers=4, max_attempts=5)
def send(mail: Mail) -> None:
    time.sleep(0.2)  # stands for the mail server
    print(f"a mail to {mail.to}")


@Parcel.xq.worker(workers=100, max_attempts=5)
async def post(parcel: Parcel) -> None:
    await asyncio.sleep(0.4)  # stands for a request to the parcel service
    print(f"a parcel to {parcel.to}")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with db.connection_context():
        db.create_tables([Order, Mail, Parcel])
    workers = [asyncio.create_task(model.xq.aio.run()) for model in (Mail, Parcel)]
    yield
    for each in workers:
        each.cancel()  # it takes no more tasks, and its functions run to their end
    await asyncio.gather(*workers, return_exceptions=True)  # the log has the error of workers that ended before


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{name}")
def order(name: str) -> None:
    with db.connection_context(), db.atomic():  # all three rows or none; the thread of the request keeps no connection
        Order.create(name=name)
        Mail.put({"to": name})
        Parcel.put({"to": name})


def visit(server: uvicorn.Server) -> None:
    """Stand for the users: order twice, wait until the tasks are done, and press Ctrl-C."""
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    for name in ("ann", "bob"):
        urlopen(f"http://127.0.0.1:{port}/orders/{name}", b"").close()
    with db.connection_context():
        while Mail.xq.count("done") + Parcel.xq.count("done") < 4:
            time.sleep(0.05)
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        uvicorn.run(app)
    else:
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        threading.Thread(target=visit, args=[server], daemon=True).start()
        with suppress(KeyboardInterrupt):
            server.run()
        print("The server has ended, and the workers with it")
