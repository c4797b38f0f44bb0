"""Calls as data: features, the state before, and the call. A new call is a line of CALLS.

The first word of a name is the method. A call of several transactions lists in `between` calls that leave the states
between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import xq
from tests.explore.homes import World, nothing
from tests.features import together
from xq.features.steps.lines import mark
from xq.testing import run_pending

Does = Callable[[World], Any]

PLAIN: dict[str, Any] = {"delayed": True, "buried": "any", "keep": True, "ttr": 60, "history": True}
UNIQUE = {**PLAIN, "unique": True}
UTUBE = {**PLAIN, "utube": True}
FAIR = {**PLAIN, "utube": {"n": 1, "fair": True}}
RATE = {**PLAIN, "rate": "1/10s"}
LINKED = {**PLAIN, "after": True, "groups": True}
TIMED = {**PLAIN, "ttr": 10, "ttl": 20}
LIMIT = {**PLAIN, "limit": 5, "max_takes": 2}
ZOMBIE = {"zombie": 20, "history": True}
ANYONE = {**PLAIN, "ttr": 40, "not_check_session": True}
LIFETIME = {**PLAIN, "ttr": 10, "lifetime": 20}
LOSES = {**PLAIN, "ttr": 10, "max_takes": 2}
DROPS = {**LINKED, "ttr": 10, "max_takes": {"n": 1, "to": "X"}}
SLOW = {**PLAIN, "rate": "1/100s"}  # not full again when a fresh process recovers
TURNS = {**PLAIN, "utube": {"n": 2, "fair": True}}
PRIORITY = {**PLAIN, "priority": True}
EVENTS, GUARD = {**PLAIN, "events": True}, {**PLAIN, "guard": True}
KEEPS = {**PLAIN, "keep": timedelta(seconds=20)}
STEPS = {**PLAIN, "steps": True}
MEMBERS = {**LINKED, "steps": True}
# Each call is also cut with all of these.
ALL = together(**FAIR, priority="highest")


@dataclass(frozen=True)
class Call:
    name: str
    before: Does
    call: Does = nothing
    features: Mapping[str, Any] = field(default_factory=lambda: PLAIN)
    between: tuple[Does, ...] | None = None  # None: it is one transaction
    then: Mapping[str, Any] | None = None  # features of the fresh process, if they differ
    recovers: Does = nothing  # the first call of the fresh process
    opens: Does = nothing  # the first of each process: it may replace the queue
    bare: bool = False  # whether the queue is not installed before
    varies: bool = False  # whether one run sends more statements than another
    block: bool = False  # whether it is a block of the caller's, which xq cannot repeat after a conflict
    by: str = "S"  # of a pair's state: the process that brings it about, and owns what it takes
    later: float = 0  # of a pair's state: seconds that pass afterwards

    @property
    def states(self) -> list[Does]:
        """Return the programs that leave the state before the call, those between, and the state after it."""
        return [nothing, *(self.between or ()), self.call]

    @property
    def base(self) -> str:
        """Return the key of the database before the call: equal for calls that share one, which change rows alone."""
        return repr((self.features, self.bare, self.recovers is nothing, self.opens is nothing))


def by_name(*lines: Any) -> dict[str, Any]:
    found = {line.name: line for line in lines}
    assert len(found) == len(lines), "two lines have one name"
    return found


def group(w: World, n: int = 2, failed: str | None = None, **options: Any) -> World:
    with w.q.group("g", then=w.row(), failed=failed) as found:
        found.put_many(w.rows(n), **options)
    return w


def orphaned(w: World) -> World:
    """Three tasks, two of them taken by a process that is dead."""
    w.put(3).db.close()
    if not (pid := os.fork()):
        w.take(2)
        os._exit(0)
    os.waitpid(pid, 0)
    if w.engine == "sqlite":
        os.utime(f"{w.db.database}-xq", (0, 0))
    return w


def family(w: World, on_failure: str) -> World:
    """A task, two that wait for it, and one that waits for the first of these."""
    w.t = w.q.put_many(w.rows(2), after=w.q.put(w.row()), on_failure=on_failure)
    w.q.put(w.row(), after=w.t[0], on_failure=on_failure)
    return w


# What is there before a call, and what several calls do.
W: Any = SimpleNamespace(
    two=lambda w: w.put(2),
    taken=lambda w: w.put(2).take(),
    many=lambda w: w.put(4).take(3),
    buried=lambda w: w.put(3).take(2).do("bury_many", w.t),
    utubes=lambda w: w.put(2, utube="a").put(2, utube="b").put(),
    of_utube=lambda w: W.utubes(w).take(),
    unique=lambda w: w.put(job="j"),
    chain=lambda w: w.do("put_many", w.rows(3), chain=True),  # a task, one after it, and one after that
    scheduled=lambda w, seconds=50: w.do("every", seconds, w.row(), name="s"),
    miscounted=lambda w: w.put(2).db.execute_sql("UPDATE task_xq_count SET n = n + 5 WHERE target = 'R'"),
    orphaned=orphaned,
    take=lambda w: w.take(),
    ack=lambda w: w.q.ack(w.t[0]),
    kill_first=lambda w: w.q.kill(w.q.by_state("R")[0]),
    sweep=lambda w: w.q.sweep(),
    reaps=lambda w: (w.reap(), w.q.sweep()),
    own=lambda w: w.do("put_many", [w.row(job="j", utube="a"), w.row(utube="a"), w.row(utube="b")]),
    dig_by_one=lambda w: w.q.act("dig", "state:buried", chunk=1),
)


# calls that need statements


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


def takes_in_doubt(w: World) -> None:
    """Take, and give the task back with its attempt, as a process does whose take was not answered."""
    w.take()
    for (token,) in w.db.execute_sql("SELECT owner FROM task WHERE owner IS NOT NULL").fetchall():
        w.q.parts.takes.in_doubt.unattended.undo_take(token)


def work(w: World, error: type[Exception] | None = None) -> None:
    """Run a worker until no task is ready. Its function returns, or raises `error`."""

    def function(task: Any) -> None:
        w.note("had", task.name)
        if error is not None:
            raise error()

    w.q.worker(function, backoff=5)
    run_pending(w.q)


def goes_on(w: World, *until: str) -> World:
    """Run a worker whose function does a step, sleeps, and waits for the signal "go"; up to one of these."""

    def function(task: Any) -> None:
        w.note("had", task.name)
        xq.step("a", str)
        if "step" in until:
            raise xq.Bury("look")
        xq.sleep("s", 5)
        xq.wait_for("go", timeout=500)

    w.q.handlers.clear()
    w.q.worker(function, backoff=5)
    run_pending(w.q)
    return w


def recorded(w: World) -> None:
    """Take, and record a step."""
    (found,) = w.take().t
    begins = mark("step", "a")
    line = {"step_line": f'{begins}"at":', "step_rest": ',"value":null}', "step_mark": begins}
    w.q.parts.named.one("step", found, brings=line)


def waits(w: World) -> World:
    goes_on(w.put())
    w.q.restart(w.q.by_state("W")[0])
    return goes_on(w)


def awaits_group(w: World) -> World:
    """A task that waits for the end of a group with one member, which is taken."""
    (found,) = waits(w).q.by_state("W")
    with w.q.group("g", then=(found, "go")) as members:
        members.put_many(w.rows(1))
    return w.take()


def signal(w: World) -> Any:
    return w.q.signal(w.q.by_state("W")[0], "go", 7)


CALLS: Mapping[str, Call] = by_name(
    Call("put", nothing, lambda w: w.q.put(w.row())),
    Call("put, delay", nothing, lambda w: w.q.put(w.row(), delay=5)),
    Call("put, utube", W.utubes, lambda w: w.q.put(w.row(utube="b")), UTUBE),
    Call("put, skip", W.unique, lambda w: w.q.put(w.row(job="j"), on_conflict="skip"), UNIQUE),
    Call("put, replace", W.unique, lambda w: w.q.put(w.row(job="j"), on_conflict="replace"), UNIQUE),
    Call("put, ended", lambda w: W.unique(w).take().do("ack", w.t[0]), lambda w: w.q.put(w.row(job="j")), UNIQUE),
    Call("put, after", W.two, lambda w: w.q.put(w.row(), after=w.q.by_state("R")), LINKED),
    Call("put, limit", W.two, lambda w: w.q.put(w.row()), LIMIT),
    Call("put_many", nothing, lambda w: w.q.put_many(w.rows(3))),
    Call("put_many, chain", nothing, W.chain, LINKED),
    Call("put_many, skip", W.unique, lambda w: w.q.put_many([w.row(job=j) for j in "jk"], on_conflict="skip"), UNIQUE),
    Call("put_many, two statements", nothing, lambda w: w.q.put_many(w.rows(201))),
    Call("take", W.two, W.take),
    Call("take, due", lambda w: w.put(2, delay=5).tick(10), W.take, between=(W.sweep,)),
    Call("take, tube", lambda w: w.put(tube="a", utube="a").put(tube="b", utube="b"), lambda w: w.take(tube="b")),
    Call("take, utube", W.of_utube, W.take, UTUBE),
    Call("take, fair", W.of_utube, W.take, FAIR),
    Call("take, rate", W.two, W.take, RATE),
    Call("take, slow rate", W.two, W.take, SLOW),
    Call("take_many", lambda w: w.put(4), lambda w: w.take(3)),
    Call("take_many, utube", W.utubes, lambda w: w.take(3), UTUBE),
    Call("take_many, fair rounds", W.utubes, lambda w: w.take(5), TURNS),
    Call("ack", W.taken, W.ack),
    Call("ack, update", W.taken, lambda w: w.q.ack(w.t[0], update={"size": 7})),
    Call("ack, utube", W.of_utube, W.ack, UTUBE),
    Call("ack, fair", W.of_utube, W.ack, FAIR),
    Call("ack, parent", lambda w: W.chain(w).take(), W.ack, LINKED),
    Call("ack, member", lambda w: group(w).take(), W.ack, LINKED),
    Call("ack, last member", lambda w: group(w, 1).take(), W.ack, LINKED),
    Call("ack, zombie", W.taken, W.ack, ZOMBIE),
    Call("ack_many", W.many, lambda w: w.q.ack_many(w.t)),
    Call("ack_many, last members", lambda w: group(w).take(2), lambda w: w.q.ack_many(w.t), LINKED),
    Call("release", W.taken, lambda w: w.q.release(w.t[0])),
    Call("release, delay", W.taken, lambda w: w.q.release(w.t[0], delay=5)),
    Call("release, utube", W.of_utube, lambda w: w.q.release(w.t[0]), UTUBE),
    Call("release_many", W.many, lambda w: w.q.release_many(w.t)),
    Call("release_all", W.many, lambda w: w.q.release_all()),
    Call("bury", W.taken, lambda w: w.q.bury(w.t[0])),
    Call("bury, parent", lambda w: W.chain(w).take(), lambda w: w.q.bury(w.t[0]), LINKED),
    Call("bury, runs dependants", lambda w: family(w, "run").take(), lambda w: w.q.bury(w.t[0]), LINKED),
    Call("bury, runs then", lambda w: group(w, 1, failed="run").take(), lambda w: w.q.bury(w.t[0]), LINKED),
    Call("bury_many", W.many, lambda w: w.q.bury_many(w.t, error="it failed")),
    Call("touch", W.taken, lambda w: w.q.touch(w.t[0], 5)),
    Call("touch_many", W.many, lambda w: w.q.touch_many(w.t, 5)),
    Call("touch_many, of anyone", W.many, lambda w: w.q.touch_many(w.t, 500, update={"size": 3}), ANYONE),
    Call("dig", W.buried, lambda w: w.q.dig(w.t[0], fresh=True)),
    Call("dig, again", lambda w: goes_on(w.put(), "step"), lambda w: w.q.dig(w.q.by_state("B")[0], again="a"), STEPS),
    Call("kick", W.buried, lambda w: w.q.kick(w.t[0])),
    Call("plow", W.buried, lambda w: w.q.plow(2)),
    Call("kill", W.taken, lambda w: w.q.kill(w.t[0])),
    Call("kill, parent", W.chain, W.kill_first, LINKED),
    Call("kill, kills dependants", lambda w: family(w, "kill"), W.kill_first, LINKED),
    Call("kill, last member", lambda w: group(w, 1), W.kill_first, LINKED),
    Call("kill_many", W.many, lambda w: w.q.kill_many(w.t)),
    Call("cancel", W.taken, lambda w: w.q.cancel(w.t[0])),
    Call("cancel, to B", W.taken, lambda w: w.q.cancel(w.t[0], to="B")),
    Call("cancel, last member", lambda w: group(w, 1).take(), lambda w: w.q.cancel(w.t[0]), LINKED),
    Call("snatch", W.taken, lambda w: w.q.snatch(w.t[0])),
    Call("snatch, events", W.taken, lambda w: w.q.snatch(w.t[0]), EVENTS),
    Call("restart", lambda w: W.taken(w).do("ack", w.t[0]), lambda w: w.q.restart(w.t[0])),
    Call("reprioritise", W.taken, lambda w: w.q.reprioritise(w.q.by_state("R")[0], 5), PRIORITY),
    Call("reprioritise_many", W.two, lambda w: w.q.reprioritise_many(w.q.by_state("R"), 5), PRIORITY),
    Call("switch", W.two, lambda w: w.q.switch(w.q.by_state("R")[0], "B")),
    Call("switch, last member", lambda w: group(w, 1), lambda w: w.q.switch(w.q.by_state("R")[0], "D"), LINKED),
    Call("call", W.taken, lambda w: w.q.call("release", w.t[0])),
    Call("truncate", W.taken, lambda w: w.q.truncate()),
    Call("truncate, groups", lambda w: group(w).take(), lambda w: w.q.truncate(), LINKED),
    Call("act", W.buried, lambda w: w.q.act("dig", "state:buried").run()),
    Call("act, kills dependants", lambda w: family(w, "kill"), lambda w: w.q.act("kill", "state:ready").run(), LINKED),
    Call("act, chunks", W.buried, lambda w: W.dig_by_one(w).run(), between=(lambda w: next(iter(W.dig_by_one(w))),)),
    Call("group", nothing, group, LINKED, block=True),
    Call("group put", group, lambda w: w.q.group("g").put(w.row()), LINKED),
    Call("group kill", group, lambda w: w.q.group("g").kill(), LINKED),
    Call("group dig", lambda w: group(w).take(2).do("bury_many", w.t), lambda w: w.q.group("g").dig(), LINKED),
    Call("group pause", group, lambda w: w.q.group("g").pause(), LINKED),
    Call("group resume", lambda w: group(w).q.group("g").pause(), lambda w: w.q.group("g").resume(), LINKED),
    Call("pause", W.two, lambda w: w.q.pause(actor="ann", reason="a bad deploy")),
    Call("pause, tube", lambda w: w.put(2, tube="a"), lambda w: w.q.pause("a")),
    Call("resume", lambda w: W.two(w).do("pause"), lambda w: w.q.resume()),
    Call("set_limit", W.utubes, lambda w: w.q.set_limit("utube", 2, value="a"), UTUBE),
    Call("set_limit, rate", W.two, lambda w: w.q.set_limit("rate", "2/s"), RATE),
    Call("set_limit, slow rate", lambda w: W.two(w).take(), lambda w: w.q.set_limit("rate", "1/50s"), SLOW),
    Call("every", nothing, W.scheduled),
    Call("every, again", W.scheduled, lambda w: W.scheduled(w, 70)),
    Call("unschedule", W.scheduled, lambda w: w.q.unschedule("s")),
    Call("run_schedule", W.scheduled, lambda w: w.q.run_schedule("s")),
    Call("pause_schedule", W.scheduled, lambda w: w.q.pause_schedule("s")),
    Call("resume_schedule", lambda w: W.scheduled(w).do("pause_schedule", "s"), lambda w: w.q.resume_schedule("s")),
    Call("sweep, delayed", lambda w: w.put(2, delay=5).tick(10), W.sweep, between=()),
    Call("sweep, ttr", lambda w: W.many(w).tick(15), W.sweep, TIMED, ()),
    Call("sweep, ttl", lambda w: W.two(w).tick(25), W.sweep, TIMED, ()),
    Call("sweep, zombie", lambda w: W.taken(w).do("ack", w.t[0]).tick(25), W.sweep, ZOMBIE, ()),
    Call("sweep, utube", lambda w: W.utubes(w.put(2, utube="c", delay=5)).tick(10), W.sweep, UTUBE, ()),
    Call("sweep, schedule", lambda w: W.scheduled(w, 20).tick(25), W.sweep, between=()),
    Call("sweep, member", lambda w: group(w, 1, ttl=20).tick(25), W.sweep, {**LINKED, "ttl": True}, ()),
    Call("sweep, reaps", orphaned, W.reaps, between=()),
    Call("sweep, reaps utube", orphaned, W.reaps, UTUBE, ()),
    Call("sweep, ttr of anyone", lambda w: W.many(w).tick(45), W.sweep, ANYONE, ()),
    Call("sweep, lifetime", lambda w: W.many(w).tick(25), W.sweep, LIFETIME, ()),
    Call("sweep, keep", lambda w: W.taken(w).do("ack", w.t[0]).tick(25), W.sweep, KEEPS, ()),
    Call("sweep, max_takes", lambda w: w.put().take().tick(15).do("sweep").take().tick(15), W.sweep, LOSES, ()),
    Call("sweep, drops parent", lambda w: family(w, "kill").take().tick(15), W.sweep, DROPS, ()),
    Call("worker, returns", World.put, work, between=(W.take,)),
    Call("worker, raises", World.put, lambda w: work(w, ValueError), between=(W.take,)),
    Call("worker, steps", World.put, goes_on, STEPS, between=(W.take, recorded)),
    Call("worker, wakes", lambda w: goes_on(w.put()).tick(6), goes_on, STEPS, between=(W.sweep, lambda w: w.take())),
    Call("signal", W.two, lambda w: w.q.signal(w.q.by_state("R")[0], "go", 7), STEPS),
    Call("signal, awaited", waits, signal, STEPS),
    Call("signal, of a group", awaits_group, W.ack, MEMBERS),
    Call("transaction", W.taken, puts_and_acks),
    Call("acting", W.taken, acts_as_ann, block=True),
    Call("session", W.two, in_a_session, between=(W.take, takes_in_doubt)),
    Call("configure", nothing, lambda w: w.q.configure(session_ttr=7)),
    Call("recount", W.miscounted, lambda w: w.q.recount(), recovers=lambda w: w.q.recount()),
    Call("reset", W.taken, lambda w: w.q.reset()),
    Call("install", nothing, lambda w: w.q.install(), LINKED, bare=True, recovers=lambda w: w.do("install").put(2)),
    Call("install, changed", W.two, lambda w: w.queue(UTUBE).install(), then=UTUBE, recovers=lambda w: w.q.install()),
    Call("install, of all", W.taken, lambda w: w.queue(ALL).install(), then=ALL, recovers=lambda w: w.q.install()),
    Call("uninstall", W.two, lambda w: w.q.uninstall(), LINKED, recovers=lambda w: w.do("uninstall").do("install")),
)
WITH_ALL = by_name(
    *(
        replace(call, name=f"{call.name}, all", features={**ALL, **call.features})
        for call in CALLS.values()
        if not call.features.keys() & {"zombie", "lifetime", "not_check_session"}  # which exclude others
    )
)

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
# Features with which no call is cut.
NO_FEATURE = {
    "id": "keys are made before the first statement",
    "retval": "it changes what is returned alone",
}
