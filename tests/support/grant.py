"""Users of real servers, and a queue of which they may do only some things."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import peewee as pw

import xq
from tests.conftest import live
from tests.servers import Postgres
from xq.adapters.peewee.connections import Place
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
        self.is_postgres = isinstance(server, Postgres)
        self.role = "ROLE" if self.is_postgres else "USER"
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
        return xq.upgrade(live(db).model(), {role: role for role in ("status", *roles)}, features, methods=False)

    def user(self, on_task: str = "") -> str:
        """A new user; with rights on the table of the tasks, where these are named, and all on the tables of xq."""
        user = f"u{next(_numbers)}"
        self.server.run(f"CREATE {self.role} {user}{' LOGIN' if self.is_postgres else ''}", self.name)
        self.users.append(user)
        if on_task:
            for table in self.owner.get_tables():
                rights = on_task if table == "task" else "SELECT, INSERT, UPDATE, DELETE"
                self.server.run(f"GRANT {rights} ON {table} TO {user}", self.name)
            rights = "USAGE ON ALL SEQUENCES IN SCHEMA public"
            if not self.is_postgres:
                rights = f"CREATE TEMPORARY TABLES ON `{self.name}`.*"
            self.server.run(f"GRANT {rights} TO {user}", self.name)
        return user

    @contextmanager
    def connected(self, user: str) -> Iterator[pw.Database]:
        with closing(self.server.peewee(self.name, user=user)) as db:
            try:
                yield db
            finally:
                sessions.of(Place.of(db)).exit()

    def remove(self) -> None:
        self.owner.close()
        for user in self.users:
            if self.is_postgres:
                self.server.run(f"DROP OWNED BY {user}", self.name)
            self.server.run(f"DROP {self.role} {user}", self.name)
