"""Judge pairs of calls: A in an open transaction of the caller, B beside it in another process.

A pair is a state and two calls that want the same task. B returns, or waits until A has ended. The results of both, and
the digest after recovery, must be those of A then B, or of B then A; after a rollback, those of B alone. B may skip
locked tasks: then those without B, or those of B beside other locks.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from itertools import count, product
from typing import Any, NamedTuple

import xq
from tests.explore.calls import CALLS, FAIR, LIMIT, LINKED, RATE, TIMED, UNIQUE, UTUBE, Call, W, by_name, group
from tests.explore.homes import Address, Home, World, nothing
from tests.explore.judge import closest, told
from tests.steps import STUCK, Other, is_conflict, isolate, writing

LEVELS = ("read-committed", "repeatable-read", "serializable")
# The steps of a run, by how it ends. `late`: A has read before B came, and acts after it.
CALLED = "A:begins A:calls A:returns"
ENDS = {
    "commit": f"{CALLED} B:calls A:ends:committed B:returns",
    "rollback": f"{CALLED} B:calls A:ends:undone B:returns",
    "late": "A:begins A:reads:rows B:calls B:returns A:calls A:returns A:ends:committed",
}
# The steps that leave what a run may leave, the likely ones first: in turn, or B beside what a third process S locks.
A, B = f"{CALLED} A:ends:committed", "B:calls B:returns"
READS = {
    "rows": "",
    "first": "ORDER BY id LIMIT 1 FOR UPDATE",
    "ready": "WHERE status = 'R' ORDER BY id LIMIT 1 FOR UPDATE",
    "all": "FOR UPDATE",
}
PASSES = [f"S:begins S:reads:{which} B:calls S:ends:undone B:returns" for which in ("first", "ready", "all")]
IN_TURN, UNDONE = (f"{A} {B}", f"{B} {A}", A, *(f"{A} {each}" for each in PASSES)), (B, "", *PASSES)
ALLOWED = {"commit": IN_TURN, "rollback": UNDONE, "late": IN_TURN}
# Pairs for which the documents allow more.
DOCUMENTED = {
    "* act-*": "operations.md, each task once: Ready tasks that are put meanwhile may be among the last",
    "* worker,* fair*": "utubes.md: Other takes skip that utube meanwhile",
    "take* * mariadb repeatable-read late": "databases.md: Its snapshot may still show tasks as ready",
}
CONFLICT, RAW = "a conflict", "not of xq: "  # how a call failed, if not by an error of xq's
PATIENCE = 0.3  # seconds after which B counts as blocked: a take that finds nothing returns after 0.25


# What is there before a pair. The task that both want is the one that is taken, else the first one.
STATES: Mapping[str, Call] = by_name(
    Call("ready", lambda w: w.put(3)),
    Call("waiting", lambda w: w.put(delay=5).put(2)),
    Call("due", lambda w: w.put(delay=5).put(2), later=10),
    Call("taken", lambda w: w.put(3).take(), by="A"),
    Call("taken-by-B", lambda w: w.put(3).take(), by="B"),
    Call("taken-by-another", lambda w: w.put(3).take()),
    Call("late", lambda w: w.put(3).take(ttr=5), by="A", later=10),
    Call("late-of-B", lambda w: w.put(3).take(ttr=5), by="B", later=10),
    Call("late-of-another", lambda w: w.put(3).take(ttr=5), later=10),
    Call("only-late-of-B", lambda w: w.put().take(ttr=5), by="B", later=10),  # so that A takes that task
    Call("orphaned", W.orphaned),
    Call("dying", lambda w: w.put(ttl=5).put(2), features=TIMED, later=10),
    Call("buried", W.buried),
    Call("done", lambda w: w.put(3).take().do("ack", w.t[0])),
    Call("parent", lambda w: W.chain(w).put(2), features=LINKED),
    Call("parent-taken", lambda w: W.chain(w).put(2).take(), features=LINKED, by="A"),
    Call("parent-taken-by-B", lambda w: W.chain(w).put(2).take(), features=LINKED, by="B"),
    Call("member", lambda w: group(w).put(2), features=LINKED),
    Call("last-member", lambda w: group(w, 1).put(2), features=LINKED),
    Call("last-member-taken", lambda w: group(w, 1).put(2).take(), features=LINKED, by="A"),
    Call("utube", W.utubes, features=UTUBE),
    Call("utube-taken", W.of_utube, features=UTUBE, by="A"),
    Call("utube-taken-by-B", W.of_utube, features=UTUBE, by="B"),
    Call("fair", W.utubes, features=FAIR),
    Call("fair-taken", W.of_utube, features=FAIR, by="A"),
    Call("rate", lambda w: w.put(3), features=RATE),
    Call("limit", lambda w: w.put(4), features=LIMIT),
    Call("limit-taken", lambda w: w.put(5).take(), features=LIMIT, by="A"),
    Call("unique", lambda w: W.unique(w).put(2), features=UNIQUE),
    Call("unique-taken", lambda w: W.unique(w).put(2).take(), features=UNIQUE, by="A"),
    Call("unique-done", lambda w: W.unique(w).take().do("ack", w.t[0]).put(2), features=UNIQUE),
    Call("paused", lambda w: w.put(3).do("pause")),
    Call("schedule", lambda w: W.scheduled(w.put(3), 5), later=7),
)

# What a process does: lines of CALLS, for `w.t[0]`, and others. In names of pairs there are no blanks.
_CALLS = """put|put, delay|put, skip|put, replace|put_many|put_many, chain|take|take_many|ack|ack, update|ack_many
release|release, delay|release_many|release_all|bury|bury_many|touch|touch_many|dig|kick|plow|kill
kill_many|cancel|cancel, to B|snatch|restart|call|truncate|act|group put|group kill|group dig
group pause|group resume|pause|resume|set_limit|set_limit, rate|every, again|unschedule|run_schedule
pause_schedule|resume_schedule|worker, returns|worker, raises|transaction|configure|recount|reset"""
ACTS: Mapping[str, Call] = {
    **{name.replace(", ", ",").replace(" ", "-"): CALLS[name] for name in _CALLS.replace("\n", "|").split("|")},
    **by_name(
        Call("put,utube", nothing, lambda w: w.q.put(w.row(utube="a")), UTUBE),
        Call("put,unique", nothing, lambda w: w.q.put(w.row(job="j")), UNIQUE),
        Call("put,after", nothing, lambda w: w.q.put(w.row(), after=w.t), LINKED),
        Call("put,after-kill", nothing, lambda w: w.q.put(w.row(), after=w.t, on_failure="kill"), LINKED),
        Call("touch,update", nothing, lambda w: w.q.touch(w.t[0], update={"size": 7})),
        Call("switch,B", nothing, lambda w: w.q.switch(w.t[0], "B")),
        Call("switch,R", nothing, lambda w: w.q.switch(w.t[0], "R")),
        Call("act-kill", nothing, lambda w: w.q.act("kill", "state:R,W,T,B").run()),
        Call("act-cancel", nothing, lambda w: w.q.act("cancel", "state:R,W,T").run()),
        Call("act-snatch", nothing, lambda w: w.q.act("snatch", "state:T").run()),
        Call("sweep", nothing, W.sweep),
        Call("reaps", nothing, W.reaps),
    ),
}


class Pair(NamedTuple):
    a: str
    b: str
    state: str

    @property
    def name(self) -> str:
        return f"pair {self.a} {self.b} {self.state}"


PAIRS = [
    Pair(a, b, state.name)
    for state in STATES.values()
    for a, b in product([name for name, act in ACTS.items() if act.features.keys() <= state.features.keys()], repeat=2)
]


def settings(engine: str) -> list[str]:
    """Return the isolation levels and ends of each pair there."""
    found = [f"{level} {end}" for level in (LEVELS if engine != "sqlite" else LEVELS[-1:]) for end in ENDS]
    return [each for each in found if engine == "postgres" or each != "serializable late"]  # B waits for the reader


class Player(World):
    """One process of a run. Each step sends its result, or None, through a pipe."""

    def __init__(self, address: Address, state: Call, level: str) -> None:
        super().__init__(address, state.features)
        if self.engine != "sqlite":
            isolate(self.db, level.upper().replace("-", " "))
        self._state, self._open, self._is_lost = state, ExitStack(), False

    def finds(self, _: str) -> None:
        self._state.before(self)

    def meets(self, who: str) -> None:
        """Advance the clock, and select the task by its key unless this process has taken it."""
        self.clock.tick(self._state.later)
        self._numbers = count(100 * "SAB".index(who))  # no two processes put the same name
        Task = self.q.model
        self.t = self.t or [Task.select(Task.id).order_by(Task.id).scalar()]

    def begins(self, _: str) -> None:
        self._open.enter_context(writing(self.db))

    def reads(self, which: str) -> None:
        self.db.execute_sql(f"SELECT id FROM task {READS[which]}").fetchall()

    def calls(self, act: str) -> Any:
        try:
            found = ACTS[act].call(self)
        except Exception as error:
            return self._failed(error)
        return told(self, found)

    def ends(self, how: str) -> Any:
        error = RuntimeError() if how == "undone" or self._is_lost else None
        try:
            self._open.__exit__(type(error) if error else None, error, None)
        except Exception as raised:
            return self._failed(raised)
        return None

    def _failed(self, error: Exception) -> str:
        if isinstance(error, xq.Error):
            return type(error).__name__
        self._is_lost = True
        return CONFLICT if is_conflict(error) else f"{RAW}{type(error).__name__}: {error}"


def play(address: Address, name: str, ledger: str, a: str, b: str, level: str, order: str) -> tuple[str, Any]:
    """Return the results of A and B, then kill all processes."""
    player, acts = Player(address, STATES[name], level), {"A": a, "B": b}

    def script() -> Generator[Any, Any, None]:
        answer: Any = None
        while True:
            step, what = yield answer
            answer = getattr(player, step)(what)

    signal.alarm(5 * STUCK)  # longer than those of Other, which leave none of these processes behind
    found: dict[str, Any] = dict.fromkeys("AB")
    with ExitStack() as stack:
        players = {who: Other(player.db, script) for who in sorted({*order, STATES[name].by} & {*"SAB"})}
        for other in players.values():
            stack.callback(other.kill)
            next(other)
        steps = [f"{STATES[name].by}:finds", *(f"{who}:meets:{who}" for who in players), *order.split()]
        for who, step, *what in (each.split(":") for each in steps):
            if step != "returns":
                players[who].post((step, what[0] if what else acts.get(who)))
            if step == "calls":
                players[who].is_heard(PATIENCE)
            elif (answer := players[who].hear()) is not None:
                found[who] = answer
    return "returned", found


def finding(home: Home, pair: Pair, setting: str) -> str:
    """Return what does not hold: the command that repeats it, and how it differs from the most alike serial order."""
    level, end = setting.split()
    name = f"{pair.name} {home.engine} {setting}"

    def run(order: str, level: str = LEVELS[0]) -> dict[str, Any]:
        run = home.run("play", STATES[pair.state], a=pair.a, b=pair.b, level=level, order=order)
        assert not run.digest["wrong"], f"{order}: {run.digest['wrong']}"
        return {**run.told, **run.digest}

    def references(orders: Iterable[str]) -> Iterator[tuple[str, Any]]:
        for order in orders:
            key = (pair.state, order, pair.a * ("A:" in order), pair.b * ("B:" in order))
            if "S:" in order and home.engine == "sqlite":  # there B passes over nothing
                continue
            if key not in home.known:
                home.known[key] = run(order)
            yield order, home.known[key]

    try:
        found = run(ENDS[end], level)
        allowed = UNDONE if found["A"] == CONFLICT else ALLOWED[end]
        found |= {"A": None} if allowed is UNDONE else {}
        raw = [f"{who}: {found[who]}" for who in "AB" if RAW in str(found[who])]
        differ = raw or closest(found, references(allowed))
        if not raw and any(fnmatchcase(name, f"pair {each}*") for each in DOCUMENTED):
            return ""
    except AssertionError as stuck:
        differ = [str(stuck)]
    return "\n".join([f'make explore ARGS="{name}"', *differ]) if differ else ""


def findings(home: Home, pair: Pair, choose: Callable[[list[Any]], list[Any]] = list) -> Iterator[str]:
    """Yield what does not hold at the chosen isolation levels and ends."""
    yield from filter(None, (finding(home, pair, each) for each in choose(settings(home.engine))))
