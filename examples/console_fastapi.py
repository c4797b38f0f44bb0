"""The console of a queue as a part of an application of FastAPI, behind the application's own login.

    python examples/console_fastapi.py            asks the application three times, and ends
    python examples/console_fastapi.py --serve    serves it: open http://127.0.0.1:8330/ops/queues/

With Starlette the last line is the same: `application.mount("/ops/queues", console)`.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import peewee as pw
import uvicorn
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

import xq
import xq.serve

db = pw.SqliteDatabase(str(Path(tempfile.mkdtemp(prefix="xq-console-"), "app.db")), timeout=20)


class Mail(xq.Task):
    to = pw.TextField()

    class Meta:
        database = db


mails = xq.upgrade(Mail, features={"delayed": True, "buried": True, "history": True})


class Login:
    """Stands for the login of an application: here the header X-Demo-User names the user."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        scope["user"] = headers.get(b"x-demo-user", b"").decode("latin-1") or ("ann" if "--serve" in sys.argv else None)
        await self.app(scope, receive, send)


def user(scope: Mapping[str, Any]) -> str | None:
    """Return the name of the user whom the application has logged in. The console writes it into the history."""
    name = scope.get("user")
    return None if name is None else str(name)


console = xq.serve.app(
    [Mail],
    user=user,
    rights={"ann": "admin", "*": "viewer"},
    name="example",
    colour="#2e7d32",
)

application = FastAPI(middleware=[Middleware(Login)])
application.mount("/ops/queues", console)


def fill() -> None:
    """Put some mails, and bury one."""
    db.create_tables([Mail])
    mails.put_many([{"to": f"{name}@example.org"} for name in ("ann", "bob", "carol")])
    mails.bury_many(mails.take_many(1), error="TimeoutError: no answer")


def ask(address: str, path: str, name: str | None, form: bytes | None = None) -> str:
    """Return the status of a page for a user."""
    headers = {"Origin": address} | ({"X-Demo-User": name} if name else {})
    try:
        with urlopen(Request(f"{address}{path}", form, headers), timeout=30) as answer:
            return str(answer.status)
    except HTTPError as error:
        with error:
            return str(error.code)


def main() -> None:
    fill()
    serves = "--serve" in sys.argv
    server = uvicorn.Server(uvicorn.Config(application, port=8330 if serves else 0, log_level="error"))
    if serves:
        print("Open http://127.0.0.1:8330/ops/queues/ (Ctrl-C ends it)")
        server.run()
        return
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    dig = b"verb=dig&scope=selected&keys=1&reason=it+answers+again"
    print("Nobody:", ask(address, "/ops/queues/", None))
    print("Bob looks:", ask(address, "/ops/queues/", "bob"))
    print("Bob digs:", ask(address, "/ops/queues/q/Mail/act", "bob", dig))
    print("Ann digs:", ask(address, "/ops/queues/q/Mail/act", "ann", dig))
    last = mails.history(1)[-1]
    print(f"The history: {last.event} by {last.actor}: {last.reason}")
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
