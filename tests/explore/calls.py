"""Calls as data: what the queue is, what is there before, and the call. A new call is a line of CALLS.

The first word of a name is the method. A call that is no single transaction also has what it may leave `between` two:
calls with which the product itself leaves the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xq
from tests.explore.homes import World, nothing
from xq.testing import run_pending

Does = Callable[[World], Any]

PLAIN = {"delayed": True, "buried": "any", "keep": True, "ttr": 60, "history": True}
UNIQUE = {**PLAIN, "unique": True}
UTUBE = {**PLAIN, "utube": True}
FAIR = {**PLAIN, "utube": {"n": 1, "fair": True}}
RATE = {**PLAIN, "rate": "1/10s"}
LINKED = {**PLAIN, "after": True, "groups": True}
TIMED = {**PLAIN, "ttr": 10, "ttl": 20}
LIMIT = {**PLAIN, "limit": 5, "max_takes": 2}
ZOMBIE = {"zombie": 20, "history": True}


@dataclass(frozen=True)
class Call:
    name: str
    before: Does
    call: Does
    features: Mapping[str, Any] = field(default_factory=lambda: PLAIN)
    between: tuple[Does, ...] | None = None  # None: it is one transaction
    then: Mapping[str, Any] | None = None  # the definition that the fresh process has, if another one
    recovers: Does = nothing  # what the fresh process does first
    bare: bool = False  # whether the queue is not installed before

    @property
    def states(self) -> list[Does]:
        """What leaves the state before the call, those between, and that after it."""
        return [nothing, *(self.between or ()), self.call]

    @property
    def base(self) -> str:
        """Calls with the same have the same database before."""
        return repr((self.features, self.bare))


def utubes(w: World) -> World:
    return w.put(2, utube="a").put(2, utube="b").put()


def chain(w: World) -> World:
    """A task, one that waits for it, and one that waits for that."""
    w.q.put_many(w.rows(3), chain=True)
    return w


def group(w: World, n: int = 2, **options: Any) -> World:
    with w.q.group("g", then=w.row()) as found:
        found.put_many(w.rows(n), **options)
    return w


def buried(w: World, n: int = 2) -> World:
    w.put(n + 1).take(n).q.bury_many(w.t)
    return w


def work(w: World, error: type[Exception] | None = None, **options: Any) -> None:
    """Have a worker do one task after the other until none is ready: it returns, or raises."""

    def function(task: Any) -> None:
        w.note("had", task.name)
        if error is not None:
            raise error()

    w.q.worker(function, backoff=5, **options)
    run_pending(w.q)


def count_wrongly(w: World) -> None:
    w.put(2).db.execute_sql("UPDATE task_xq_count SET n = n + 5 WHERE target = 'R'")


def in_turn_as_ann(w: World) -> None:
    with w.q.acting("ann", reason="a bad deploy"):
        w.q.bury(w.t[0])
        w.q.put(w.row())


def in_a_session(w: World) -> None:
    with w.q.session():
        w.take()


_calls = [
    Call("put", nothing, lambda w: w.q.put(w.row())),
    Call("put, delay", nothing, lambda w: w.q.put(w.row(), delay=5)),
    Call("put, utube", utubes, lambda w: w.q.put(w.row(utube="b")), UTUBE),
    Call("put, unique skip", lambda w: w.put(job="j"), lambda w: w.q.put(w.row(job="j"), on_conflict="skip"), UNIQUE),
    Call(
        "put, unique replace",
        lambda w: w.put(job="j"),
        lambda w: w.q.put(w.row(job="j"), on_conflict="replace"),
        UNIQUE,
    ),
    Call(
        "put, unique ended",
        lambda w: w.put(job="j").take().do("ack", w.t[0]),
        lambda w: w.q.put(w.row(job="j")),
        UNIQUE,
    ),
    Call("put, after", lambda w: w.put(2), lambda w: w.q.put(w.row(), after=w.q.by_state("R")), LINKED),
    Call("put, limit", lambda w: w.put(2), lambda w: w.q.put(w.row()), LIMIT),
    Call("put_many", nothing, lambda w: w.q.put_many(w.rows(3))),
    Call("put_many, chain", nothing, lambda w: w.q.put_many(w.rows(3), chain=True), LINKED),
    Call(
        "put_many, unique skip",
        lambda w: w.put(job="j"),
        lambda w: w.q.put_many([w.row(job="j"), w.row(job="k")], on_conflict="skip"),
        UNIQUE,
    ),
    Call("take", lambda w: w.put(2), lambda w: w.take()),
    Call("take, due", lambda w: w.put(2, delay=5).tick(10), lambda w: w.take()),
    Call("take, tube", lambda w: w.put(tube="a").put(tube="b"), lambda w: w.take(tube="b")),
    Call("take, utube", lambda w: utubes(w).take(), lambda w: w.take(), UTUBE),
    Call("take, fair", lambda w: utubes(w).take(), lambda w: w.take(), FAIR),
    Call("take, rate", lambda w: w.put(2), lambda w: w.take(), RATE),
    Call(
        "take, max_takes",
        lambda w: w.put().take().do("release", w.t[0]).take().do("release", w.t[0]),
        lambda w: w.take(),
        LIMIT,
    ),
    Call("take_many", lambda w: w.put(4), lambda w: w.take(3)),
    Call("take_many, utube", utubes, lambda w: w.take(3), UTUBE),
    Call("ack", lambda w: w.put(2).take(), lambda w: w.q.ack(w.t[0])),
    Call("ack, update", lambda w: w.put(2).take(), lambda w: w.q.ack(w.t[0], update={"size": 7})),
    Call("ack, utube", lambda w: utubes(w).take(), lambda w: w.q.ack(w.t[0]), UTUBE),
    Call("ack, fair", lambda w: utubes(w).take(), lambda w: w.q.ack(w.t[0]), FAIR),
    Call("ack, parent", lambda w: chain(w).take(), lambda w: w.q.ack(w.t[0]), LINKED),
    Call("ack, member", lambda w: group(w).take(), lambda w: w.q.ack(w.t[0]), LINKED),
    Call("ack, last member", lambda w: group(w, 1).take(), lambda w: w.q.ack(w.t[0]), LINKED),
    Call("ack, zombie", lambda w: w.put().take(), lambda w: w.q.ack(w.t[0]), ZOMBIE),
    Call("ack_many", lambda w: w.put(4).take(3), lambda w: w.q.ack_many(w.t)),
    Call("ack_many, last members", lambda w: group(w, 2).take(2), lambda w: w.q.ack_many(w.t), LINKED),
    Call("release", lambda w: w.put(2).take(), lambda w: w.q.release(w.t[0])),
    Call("release, delay", lambda w: w.put(2).take(), lambda w: w.q.release(w.t[0], delay=5)),
    Call("release, utube", lambda w: utubes(w).take(), lambda w: w.q.release(w.t[0]), UTUBE),
    Call("release_many", lambda w: w.put(4).take(3), lambda w: w.q.release_many(w.t)),
    Call("release_all", lambda w: w.put(4).take(3), lambda w: w.q.release_all()),
    Call("bury", lambda w: w.put(2).take(), lambda w: w.q.bury(w.t[0])),
    Call("bury, parent", lambda w: chain(w).take(), lambda w: w.q.bury(w.t[0]), LINKED),
    Call("bury_many", lambda w: w.put(4).take(3), lambda w: w.q.bury_many(w.t, error="it failed")),
    Call("touch", lambda w: w.put(2).take(), lambda w: w.q.touch(w.t[0], 5)),
    Call("touch_many", lambda w: w.put(4).take(3), lambda w: w.q.touch_many(w.t, 5)),
    Call("dig", buried, lambda w: w.q.dig(w.t[0], fresh=True)),
    Call("kick", buried, lambda w: w.q.kick(w.t[0])),
    Call("plow", buried, lambda w: w.q.plow(2)),
    Call("kill", lambda w: w.put(2).take(), lambda w: w.q.kill(w.t[0])),
    Call("kill, parent", chain, lambda w: w.q.kill(w.q.by_state("R")[0]), LINKED),
    Call("kill, last member", lambda w: group(w, 1), lambda w: w.q.kill(w.q.by_state("R")[0]), LINKED),
    Call("kill_many", lambda w: w.put(4).take(2), lambda w: w.q.kill_many(w.t)),
    Call("cancel", lambda w: w.put(2).take(), lambda w: w.q.cancel(w.t[0])),
    Call("cancel, to B", lambda w: w.put(2).take(), lambda w: w.q.cancel(w.t[0], to="B")),
    Call("snatch", lambda w: w.put(2).take(), lambda w: w.q.snatch(w.t[0])),
    Call("restart", lambda w: w.put(2).take().do("ack", w.t[0]), lambda w: w.q.restart(w.t[0])),
    Call("switch", lambda w: w.put(2), lambda w: w.q.switch(w.q.by_state("R")[0], "B")),
    Call("call", lambda w: w.put(2).take(), lambda w: w.q.call("release", w.t[0])),
    Call("truncate", lambda w: w.put(3).take(), lambda w: w.q.truncate()),
    Call("truncate, groups", lambda w: group(w).take(), lambda w: w.q.truncate(), LINKED),
    Call("act", buried, lambda w: w.q.act("dig", "state:buried").run()),
    Call(
        "act, chunks",
        buried,
        lambda w: w.q.act("dig", "state:buried", chunk=1).run(),
        between=(lambda w: next(iter(w.q.act("dig", "state:buried", chunk=1))),),
    ),
    Call("group", nothing, lambda w: group(w), LINKED),
    Call("group put", group, lambda w: w.q.group("g").put(w.row()), LINKED),
    Call("group kill", group, lambda w: w.q.group("g").kill(), LINKED),
    Call("group dig", lambda w: group(w).take(2).do("bury_many", w.t), lambda w: w.q.group("g").dig(), LINKED),
    Call("group pause", group, lambda w: w.q.group("g").pause(), LINKED),
    Call("group resume", lambda w: group(w).q.group("g").pause(), lambda w: w.q.group("g").resume(), LINKED),
    Call("pause", lambda w: w.put(2), lambda w: w.q.pause(actor="ann", reason="a bad deploy")),
    Call("pause, tube", lambda w: w.put(2, tube="a"), lambda w: w.q.pause("a")),
    Call("resume", lambda w: w.put(2).do("pause"), lambda w: w.q.resume()),
    Call("set_limit", utubes, lambda w: w.q.set_limit("utube", 2, value="a"), UTUBE),
    Call("set_limit, rate", lambda w: w.put(2), lambda w: w.q.set_limit("rate", "2/s"), RATE),
    Call("every", nothing, lambda w: w.q.every(50, w.row(), name="s")),
    Call("every, again", lambda w: w.do("every", 50, w.row(), name="s"), lambda w: w.q.every(70, w.row(), name="s")),
    Call("unschedule", lambda w: w.do("every", 50, w.row(), name="s"), lambda w: w.q.unschedule("s")),
    Call("run_schedule", lambda w: w.do("every", 50, w.row(), name="s"), lambda w: w.q.run_schedule("s")),
    Call("pause_schedule", lambda w: w.do("every", 50, w.row(), name="s"), lambda w: w.q.pause_schedule("s")),
    Call(
        "resume_schedule",
        lambda w: w.do("every", 50, w.row(), name="s").do("pause_schedule", "s"),
        lambda w: w.q.resume_schedule("s"),
    ),
    Call("sweep, delayed", lambda w: w.put(2, delay=5).tick(10), lambda w: w.q.sweep(), between=()),
    Call("sweep, ttr", lambda w: w.put(3).take(2).tick(15), lambda w: w.q.sweep(), TIMED, ()),
    Call("sweep, ttl", lambda w: w.put(2).tick(25), lambda w: w.q.sweep(), TIMED, ()),
    Call("sweep, zombie", lambda w: w.put(2).take().do("ack", w.t[0]).tick(25), lambda w: w.q.sweep(), ZOMBIE, ()),
    Call("sweep, utube", lambda w: utubes(w.put(2, utube="c", delay=5)).tick(10), lambda w: w.q.sweep(), UTUBE, ()),
    Call("sweep, schedule", lambda w: w.do("every", 20, w.row(), name="s").tick(25), lambda w: w.q.sweep(), between=()),
    Call("sweep, member", lambda w: group(w, 1, ttl=20).tick(25), lambda w: w.q.sweep(), {**LINKED, "ttl": True}, ()),
    Call("worker, returns", lambda w: w.put(), work, between=(lambda w: w.take(),)),
    Call("worker, raises", lambda w: w.put(), lambda w: work(w, ValueError), between=(lambda w: w.take(),)),
    Call("worker, retries", lambda w: w.put(), lambda w: work(w, xq.Retry), between=(lambda w: w.take(),)),
    Call(
        "worker, buries",
        lambda w: w.put(),
        lambda w: work(w, ValueError, max_attempts=1),
        between=(lambda w: w.take(),),
    ),
    Call(
        "transaction", lambda w: w.put(2).take(), lambda w: w.q.transaction(lambda: (w.q.put(w.row()), w.q.ack(w.t[0])))
    ),
    Call("acting", lambda w: w.put(2).take(), in_turn_as_ann),
    Call("session", lambda w: w.put(2), in_a_session, between=(lambda w: w.take(),)),
    Call("configure", nothing, lambda w: w.q.configure(session_ttr=7)),
    Call("recount", count_wrongly, lambda w: w.q.recount(), recovers=lambda w: w.q.recount()),
    Call("reset", lambda w: w.put(2).take(), lambda w: w.q.reset()),
    Call("install", nothing, lambda w: w.q.install(), LINKED, bare=True, recovers=lambda w: w.do("install").put(2)),
    Call(
        "install, changed",
        lambda w: w.put(2),
        lambda w: w.queue(UTUBE).install(),
        then=UTUBE,
        recovers=lambda w: w.q.install(),
    ),
    Call(
        "uninstall",
        lambda w: w.put(2),
        lambda w: w.q.uninstall(),
        LINKED,
        recovers=lambda w: w.do("uninstall").do("install"),
    ),
]
CALLS = {call.name: call for call in _calls}
assert len(CALLS) == len(_calls), "two calls have one name"

# Methods without a line, by the reason.
_REASONS = {
    "it reads": "by_state check count doctor failures find groups health history limits paused pauses peek processes "
    "queue_stats schedules sessions snapshot stats taken timeline waiting why",
    "it returns text, which others run": "ddl sql",
    "it is of this process alone": "current_session off_change on_change",
    "it runs what `worker` has lines for, in threads: tests/guarantees kills those": "run start",
    "it waits for another process": "wait",
}
NO_LINE = {name: reason for reason, names in _REASONS.items() for name in names.split()}
