"""The event context on SQLite: what triggers read about the statement that fires them.

A trigger must work for every program that writes, and sees nothing on the connection it runs on. But a connection may
have its own version of a built-in function. So a trigger reads printf('write'): it is 'write' in every program, and
xq registers on its connections a printf with one argument that returns the event. That is a dictionary's bound
method: while a statement runs, no Python code does, and so no signal handler either. If xq must not register it
(with PRAGMA trusted_schema off, no trigger may call what a program registered), every event is a write.
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from typing import Any
from weakref import WeakValueDictionary

from xq.core.acting import NO_ACTOR, actor_of
from xq.core.connections import Connection, Connections, Run
from xq.core.kinds import Row
from xq.core.time import time_ns

# Triggers read the event, who acts and why, and in microseconds since 1970 the time at which the statement was sent, or
# as text the time by a test's clock. xq reads the context's number.
EVENT, AT, ACTOR, REASON, NUMBER = "write", "xq_at", "xq_actor", "xq_reason", "xq_event_context"
AT_REST: dict[Any, Any] = {EVENT: EVENT, AT: None, ACTOR: None, REASON: None}  # when no statement runs

_numbers = itertools.count(1)


def read(word: str) -> str:
    """Return the SQL by which a trigger reads a context value; without a context it returns `word` itself."""
    return f"printf('{word}')"


class EventContext(dict[Any, Any]):
    """One connection's event context. Threads that share the connection use it one at a time."""

    def __init__(self) -> None:
        number = next(_numbers)
        super().__init__({**AT_REST, NUMBER: number})
        _contexts[number] = self

    def __missing__(self, text: Any) -> Any:
        """Return the result of SQLite's own printf, which the application may also call."""
        with closing(sqlite3.connect(":memory:")) as plain:
            ((printed,),) = plain.execute("SELECT printf(?)", (text,))
        return printed


_contexts: WeakValueDictionary[int, EventContext] = WeakValueDictionary()  # by number; they end with their connections


def context_of(store: Connections) -> EventContext:
    """Return a new connection's context. All queues on the connection share it."""
    there = _contexts.get(_number(store))
    if there is not None:
        return there
    context = EventContext()
    ((trusted,),) = store.execute("PRAGMA trusted_schema")
    if trusted:
        store.in_use.create_function("printf", 1, context.__getitem__, deterministic=True)
    return context


def is_read(store: Connections) -> bool:
    """Return whether triggers on this connection read the event context."""
    return _number(store) in _contexts


def _number(store: Connections) -> Any:
    # Reads no table: a transaction that reads before its first write cannot write if another connection has written in
    # between. The SQL differs each time, since a cached statement would use an earlier function.
    ((number,),) = store.execute(f"SELECT {read(NUMBER)} AS asked_{next(_numbers)}")
    return number


def with_context(event: str, run: Run, has_history: bool, is_acted: bool) -> Run:
    """Return `run` with an event context: the event, and for a history also the time, and who acts if one may."""

    def run_with_event(connection: Connection, values: dict[str, Any]) -> list[Row]:
        context = connection.context
        before = context[EVENT]  # the application's SQL function may call xq while a statement runs
        context[EVENT] = event
        try:
            return run(connection, values)
        finally:
            context[EVENT] = before

    def run_for_history(connection: Connection, values: dict[str, Any]) -> list[Row]:
        context, now = connection.context, values["now"]
        before = context[EVENT], context[AT], context[ACTOR], context[REASON]
        context[EVENT] = event
        context[AT] = time_ns() // 1000 if now is None else str(round(now * 1e6))
        context[ACTOR], context[REASON] = actor_of(connection) if is_acted else NO_ACTOR
        try:
            return run(connection, values)
        finally:
            context[EVENT], context[AT], context[ACTOR], context[REASON] = before

    return run_for_history if has_history else run_with_event
