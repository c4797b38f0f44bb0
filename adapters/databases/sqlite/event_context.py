"""The event context on SQLite: what triggers read about the statement that fires them.

A trigger must work for every program that writes, and sees nothing of the connection it runs on. But a connection may
have its own version of a built-in function. So a trigger reads printf('write'), which is 'write' in every program, and
xq registers on its connections a printf of one argument that returns the event. That is the bound method of a
dictionary: while a statement runs, no Python code does, and so no signal handler either. If xq must not register it
(with PRAGMA trusted_schema off, no trigger may call what a program registered), every event is a write.
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from time import time_ns
from typing import Any
from weakref import WeakValueDictionary

from xq.adapters.databases.dialect import Run
from xq.core.ports import Connection, Connections, Row

# What triggers read: the event; the owner, of a take, since the side table of owners does not have it yet when triggers
# fire; in microseconds since 1970 the time at which the statement was sent, or that of a test's clock in its place. And
# the number of the context, which xq reads.
EVENT, OWNER, SENT, CLOCK, NUMBER = "write", "xq_owner", "xq_sent", "xq_clock", "xq_event_context"

_numbers = itertools.count(1)


def read(word: str) -> str:
    """Return the SQL by which a trigger reads a word; where nothing was told, it is the word itself."""
    return f"printf('{word}')"


class EventContext(dict[Any, Any]):
    """What the triggers of one connection read. Threads that share a connection use it one after the other."""

    def __init__(self) -> None:
        number = next(_numbers)
        super().__init__({EVENT: EVENT, OWNER: None, SENT: None, CLOCK: None, NUMBER: number})
        _contexts[number] = self

    def __missing__(self, text: Any) -> Any:
        """Return what SQLite's own printf returns: an application may use that, too."""
        with closing(sqlite3.connect(":memory:")) as plain:
            ((printed,),) = plain.execute("SELECT printf(?)", (text,))
        return printed


_contexts: WeakValueDictionary[int, EventContext] = WeakValueDictionary()  # by number; they end with their connections


def context_of(store: Connections) -> EventContext:
    """Return the context of a new connection, which all queues share that use the connection."""
    there = _contexts.get(_number(store))
    if there is not None:
        return there
    context = EventContext()
    ((trusted,),) = store.execute("PRAGMA trusted_schema")
    if trusted:
        store.function("printf", 1, context.__getitem__)
    return context


def is_read(store: Connections) -> bool:
    """Return whether triggers on this connection read what they are told."""
    return _number(store) in _contexts


def _number(store: Connections) -> Any:
    # Without reading a table: a transaction that reads before its first write is refused that, when another connection
    # came between. And in other words each time, since the driver keeps a statement with the function that was there
    # when it was prepared.
    ((number,),) = store.execute(f"SELECT {read(NUMBER)} AS asked_{next(_numbers)}")
    return number


def telling(event: str, run: Run, has_history: bool) -> Run:
    """As `run`, whose triggers read this event; for a history also the owner and the time."""

    def told(connection: Connection, values: dict[str, Any]) -> list[Row]:
        context = connection.context
        before = context[EVENT]  # an SQL function of the application's may make a call while another runs
        context[EVENT] = event
        try:
            return run(connection, values)
        finally:
            context[EVENT] = before

    def told_for_history(connection: Connection, values: dict[str, Any]) -> list[Row]:
        context, now = connection.context, values["now"]
        before = context[EVENT], context[OWNER], context[SENT], context[CLOCK]
        context[EVENT], context[OWNER] = event, values.get("owner")
        context[SENT], context[CLOCK] = time_ns() // 1000, None if now is None else round(now * 1e6)
        try:
            return run(connection, values)
        finally:
            context[EVENT], context[OWNER], context[SENT], context[CLOCK] = before

    return told_for_history if has_history else told
