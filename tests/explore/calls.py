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


def one(w: World) -> World:
    return w.put(1)


def two(w: World) -> World:
    return w.put(2)


def taken(w: World) -> World:
    return w.put(2).take()


def many(w: World) -> World:
    return w.put(4).take(3)


def buried(w: World) -> World:
    return w.put(3).take(2).do("bury_many", w.t)


def utubes(w: World) -> World:
    return w.put(2, utube="a").put(2, utube="b").put()


def of_utube(w: World) -> World:
    return utubes(w).take()


def unique(w: World) -> World:
    return w.put(job="j")


def chain(w: World) -> World:
    """A task, one that waits for it, and one that waits for that."""
    return w.do("put_many", w.rows(3), chain=True)


def group(w: World, n: int = 2, **options: Any) -> World:
    with w.q.group("g", then=w.row()) as found:
        found.put_many(w.rows(n), **options)
    return w


def scheduled(w: World, seconds: int = 50) -> World:
    return w.do("every", seconds, w.row(), name="s")


def miscounted(w: World) -> None:
    w.put(2).db.execute_sql("UPDATE task_xq_count SET n = n + 5 WHERE target = 'R'")


# what is called, if it is no expression


def acts_as_ann(w: World) -> None:
    with w.q.acting("ann", reason="a bad deploy"):
        w.q.bury(w.t[0])
        w.q.put(w.row())


def puts_and_acks(w: World) -> None:
    new = w.row()
    w.q.transaction(lambda: (w.q.put(new), w.q.ack(w.t[0])))


def in_a_session(w: World) -> None:
    with w.q.session():
        w.take()


def work(w: World, error: type[Exception] | None = None, **options: Any) -> None:
    """Have a worker do one task after the other until none is ready: it returns, or raises."""

    def function(task: Any) -> None:
        w.note("had", task.name)
        if error is not None:
            raise error()

    w.q.worker(function, backoff=5, **options)
    run_pending(w.q)


def take(w: World) -> World:
    return w.take()


def ack(w: World) -> None:
    w.q.ack(w.t[0])


def kill_first(w: World) -> None:
    w.q.kill(w.q.by_state("R")[0])


def sweep(w: World) -> None:
    w.q.sweep()


def dig_by_one(w: World) -> Any:
    return w.q.act("dig", "state:buried", chunk=1)


TAKE = (take,)

_calls = [
    Call("put", nothing, lambda w: w.q.put(w.row())),
    Call("put, delay", nothing, lambda w: w.q.put(w.row(), delay=5)),
    Call("put, utube", utubes, lambda w: w.q.put(w.row(utube="b")), UTUBE),
    Call("put, skip", unique, lambda w: w.q.put(w.row(job="j"), on_conflict="skip"), UNIQUE),
    Call("put, replace", unique, lambda w: w.q.put(w.row(job="j"), on_conflict="replace"), UNIQUE),
    Call("put, ended", lambda w: unique(w).take().do("ack", w.t[0]), lambda w: w.q.put(w.row(job="j")), UNIQUE),
    Call("put, after", two, lambda w: w.q.put(w.row(), after=w.q.by_state("R")), LINKED),
    Call("put, limit", two, lambda w: w.q.put(w.row()), LIMIT),
    Call("put_many", nothing, lambda w: w.q.put_many(w.rows(3))),
    Call("put_many, chain", nothing, chain, LINKED),
    Call("put_many, skip", unique, lambda w: w.q.put_many([w.row(job=j) for j in "jk"], on_conflict="skip"), UNIQUE),
    Call("take", two, take),
    Call("take, due", lambda w: w.put(2, delay=5).tick(10), take),
    Call("take, tube", lambda w: w.put(tube="a").put(tube="b"), lambda w: w.take(tube="b")),
    Call("take, utube", of_utube, take, UTUBE),
    Call("take, fair", of_utube, take, FAIR),
    Call("take, rate", two, take, RATE),
    Call("take, max_takes", lambda w: one(w).take().do("release", w.t[0]).take().do("release", w.t[0]), take, LIMIT),
    Call("take_many", lambda w: w.put(4), lambda w: w.take(3)),
    Call("take_many, utube", utubes, lambda w: w.take(3), UTUBE),
    Call("ack", taken, ack),
    Call("ack, update", taken, lambda w: w.q.ack(w.t[0], update={"size": 7})),
    Call("ack, utube", of_utube, ack, UTUBE),
    Call("ack, fair", of_utube, ack, FAIR),
    Call("ack, parent", lambda w: chain(w).take(), ack, LINKED),
    Call("ack, member", lambda w: group(w).take(), ack, LINKED),
    Call("ack, last member", lambda w: group(w, 1).take(), ack, LINKED),
    Call("ack, zombie", taken, ack, ZOMBIE),
    Call("ack_many", many, lambda w: w.q.ack_many(w.t)),
    Call("ack_many, last members", lambda w: group(w).take(2), lambda w: w.q.ack_many(w.t), LINKED),
    Call("release", taken, lambda w: w.q.release(w.t[0])),
    Call("release, delay", taken, lambda w: w.q.release(w.t[0], delay=5)),
    Call("release, utube", of_utube, lambda w: w.q.release(w.t[0]), UTUBE),
    Call("release_many", many, lambda w: w.q.release_many(w.t)),
    Call("release_all", many, lambda w: w.q.release_all()),
    Call("bury", taken, lambda w: w.q.bury(w.t[0])),
    Call("bury, parent", lambda w: chain(w).take(), lambda w: w.q.bury(w.t[0]), LINKED),
    Call("bury_many", many, lambda w: w.q.bury_many(w.t, error="it failed")),
    Call("touch", taken, lambda w: w.q.touch(w.t[0], 5)),
    Call("touch_many", many, lambda w: w.q.touch_many(w.t, 5)),
    Call("dig", buried, lambda w: w.q.dig(w.t[0], fresh=True)),
    Call("kick", buried, lambda w: w.q.kick(w.t[0])),
    Call("plow", buried, lambda w: w.q.plow(2)),
    Call("kill", taken, lambda w: w.q.kill(w.t[0])),
    Call("kill, parent", chain, kill_first, LINKED),
    Call("kill, last member", lambda w: group(w, 1), kill_first, LINKED),
    Call("kill_many", many, lambda w: w.q.kill_many(w.t)),
    Call("cancel", taken, lambda w: w.q.cancel(w.t[0])),
    Call("cancel, to B", taken, lambda w: w.q.cancel(w.t[0], to="B")),
    Call("snatch", taken, lambda w: w.q.snatch(w.t[0])),
    Call("restart", lambda w: taken(w).do("ack", w.t[0]), lambda w: w.q.restart(w.t[0])),
    Call("switch", two, lambda w: w.q.switch(w.q.by_state("R")[0], "B")),
    Call("call", taken, lambda w: w.q.call("release", w.t[0])),
    Call("truncate", taken, lambda w: w.q.truncate()),
    Call("truncate, groups", lambda w: group(w).take(), lambda w: w.q.truncate(), LINKED),
    Call("act", buried, lambda w: w.q.act("dig", "state:buried").run()),
    Call("act, chunks", buried, lambda w: dig_by_one(w).run(), between=(lambda w: next(iter(dig_by_one(w))),)),
    Call("group", nothing, group, LINKED),
    Call("group put", group, lambda w: w.q.group("g").put(w.row()), LINKED),
    Call("group kill", group, lambda w: w.q.group("g").kill(), LINKED),
    Call("group dig", lambda w: group(w).take(2).do("bury_many", w.t), lambda w: w.q.group("g").dig(), LINKED),
    Call("group pause", group, lambda w: w.q.group("g").pause(), LINKED),
    Call("group resume", lambda w: group(w).q.group("g").pause(), lambda w: w.q.group("g").resume(), LINKED),
    Call("pause", two, lambda w: w.q.pause(actor="ann", reason="a bad deploy")),
    Call("pause, tube", lambda w: w.put(2, tube="a"), lambda w: w.q.pause("a")),
    Call("resume", lambda w: two(w).do("pause"), lambda w: w.q.resume()),
    Call("set_limit", utubes, lambda w: w.q.set_limit("utube", 2, value="a"), UTUBE),
    Call("set_limit, rate", two, lambda w: w.q.set_limit("rate", "2/s"), RATE),
    Call("every", nothing, scheduled),
    Call("every, again", scheduled, lambda w: scheduled(w, 70)),
    Call("unschedule", scheduled, lambda w: w.q.unschedule("s")),
    Call("run_schedule", scheduled, lambda w: w.q.run_schedule("s")),
    Call("pause_schedule", scheduled, lambda w: w.q.pause_schedule("s")),
    Call("resume_schedule", lambda w: scheduled(w).do("pause_schedule", "s"), lambda w: w.q.resume_schedule("s")),
    Call("sweep, delayed", lambda w: w.put(2, delay=5).tick(10), sweep, between=()),
    Call("sweep, ttr", lambda w: many(w).tick(15), sweep, TIMED, ()),
    Call("sweep, ttl", lambda w: two(w).tick(25), sweep, TIMED, ()),
    Call("sweep, zombie", lambda w: taken(w).do("ack", w.t[0]).tick(25), sweep, ZOMBIE, ()),
    Call("sweep, utube", lambda w: utubes(w.put(2, utube="c", delay=5)).tick(10), sweep, UTUBE, ()),
    Call("sweep, schedule", lambda w: scheduled(w, 20).tick(25), sweep, between=()),
    Call("sweep, member", lambda w: group(w, 1, ttl=20).tick(25), sweep, {**LINKED, "ttl": True}, ()),
    Call("worker, returns", one, work, between=TAKE),
    Call("worker, raises", one, lambda w: work(w, ValueError), between=TAKE),
    Call("worker, retries", one, lambda w: work(w, xq.Retry), between=TAKE),
    Call("worker, buries", one, lambda w: work(w, ValueError, max_attempts=1), between=TAKE),
    Call("transaction", taken, puts_and_acks),
    Call("acting", taken, acts_as_ann),
    Call("session", two, in_a_session, between=TAKE),
    Call("configure", nothing, lambda w: w.q.configure(session_ttr=7)),
    Call("recount", miscounted, lambda w: w.q.recount(), recovers=lambda w: w.q.recount()),
    Call("reset", taken, lambda w: w.q.reset()),
    Call("install", nothing, lambda w: w.q.install(), LINKED, bare=True, recovers=lambda w: w.do("install").put(2)),
    Call("install, changed", two, lambda w: w.queue(UTUBE).install(), then=UTUBE, recovers=lambda w: w.q.install()),
    Call("uninstall", two, lambda w: w.q.uninstall(), LINKED, recovers=lambda w: w.do("uninstall").do("install")),
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
