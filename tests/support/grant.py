"""Users of real servers, and a queue of which they may do only some things."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import peewee as pw

import xq
from tests.conftest import live
from xq.sessions import session as sessions

FIELDS = ("runat", "deadline", "priority", "tube", "ttl", "ttr")

# Kinds of queues: features, roles beside status.
QUEUES: Mapping[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "plain": ({}, ()),
    "all": (
        {"delayed": True, "buried": True, "zombie": 60, "ttl": True, "ttr": True, "limit": 100, "history": 3600},
        (*FIELDS, "owner", "attempts"),
    ),
    "timed": ({"ttr": 60, "limit": 100}, ("runat",)),
    "kept": ({"keep": True, "ttr": True, "history": True}, ("runat",)),
    "utube": ({"utube": True, "lifetime": True, "buried": "any", "events": True}, (*FIELDS, "utube", "owner")),
}

_numbers = itertools.count(1)


class Land:
    """A database on a server with a queue, and users of that server."""

    def __init__(self, server: Any, name: str) -> None:
        self.server, self.name = server, name
        self.is_postgres = "postgres" in type(server).__name__.lower()
        self.owner = server.peewee(name, **({} if self.is_postgres else {"user": "root"}))
        self.users: list[str] = []
        self.kind = QUEUES["plain"]

    def queue(self, kind: str = "plain") -> Any:
        """The queue, installed, as its owner sees it."""
        self.kind = QUEUES[kind]
        queue = self.of(self.owner)
        self.owner.create_tables([queue.model])
        return queue

    def of(self, db: pw.Database) -> Any:
        """The queue as a user of this connection sees it."""
        features, roles = self.kind
        model = live(db).model()
        fields = {role: "job" if role == "unique" else role for role in ("status", *roles)}
        return xq.upgrade(model, fields, features, methods=False)

    def user(self, name: str = "") -> str:
        name = name or f"u{next(_numbers)}"
        self.server.run(f"CREATE {'ROLE' if self.is_postgres else 'USER'} {self.quoted(name)}{self.login}", self.name)
        self.users.append(name)
        return name

    def allow(self, user: str, on_task: str) -> None:
        """Grant a user these rights on the table of the tasks, and all on the tables of xq."""
        to, run = self.quoted(user), self.server.run
        for table in self.owner.get_tables():
            run(
                f"GRANT {on_task if table == 'task' else 'SELECT, INSERT, UPDATE, DELETE'} ON {table} TO {to}",
                self.name,
            )
        if self.is_postgres:
            run(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {to}", self.name)
        else:
            run(f"GRANT CREATE TEMPORARY TABLES ON `{self.name}`.* TO {to}", self.name)

    @property
    def login(self) -> str:
        return " LOGIN" if self.is_postgres else ""

    def quoted(self, name: str) -> str:
        if self.is_postgres:
            return '"' + name.replace('"', '""') + '"'
        return "`" + name.replace("`", "``") + "`@`%`"

    @contextmanager
    def connected(self, user: str) -> Iterator[pw.Database]:
        with closing(self.server.peewee(self.name, user=user)) as db:
            try:
                yield db
            finally:
                sessions.of(db).exit()

    def remove(self) -> None:
        self.owner.close()
        for user in self.users:
            if self.is_postgres:
                self.server.run(f"DROP OWNED BY {self.quoted(user)}", self.name)
            self.server.run(f"DROP {'ROLE' if self.is_postgres else 'USER'} {self.quoted(user)}", self.name)
