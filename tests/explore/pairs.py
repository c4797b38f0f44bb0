"""Judge pairs of calls: A in an open transaction of the caller, B beside it in another process.

A pair is a state, with a task that both want, and two acts. A acts within `db.atomic()`. B returns, or waits until A
has ended. What both returned, and the digest once a fresh process has worked all off, must be as after A and then B, or
B and then A; after a rollback as after B alone. B may pass over what is locked: then as without B, or as after B beside
other locks.

`make explore ARGS="pair ack kill postgres commit"`: patterns for some words of the pairs' names, in this order.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import peewee as pw

import xq
from tests.explore import calls
from tests.explore.calls import CALLS, LIMIT, LINKED, UNIQUE, UTUBE, Call, Does, chain, group
from tests.explore.homes import HOMES, Address, Home, World, nothing
from tests.explore.judge import KEYS, VOLATILE, differences
from tests.explore.zygote import Zygote
from tests.steps import STUCK, Other, is_conflict, isolate, writing

LEVELS = ("read-committed", "repeatable-read", "serializable")
# The steps of a run, by how it ends. `late`: A has read before B came, and acts after it.
ENDS = {
    "commit": "A:acts B:calls A:commits B:returns",
    "rollback": "A:acts B:calls A:rolls_back B:returns",
    "late": "A:reads B:calls B:returns A:acts A:commits",
}
# The steps that leave what a run may leave, the likely ones first: in turn, or B beside what a third process S locks.
A, B = "A:acts A:commits", "B:calls B:returns"
LOCKS = {"first": "ORDER BY id LIMIT 1", "ready": "WHERE status = 'R' ORDER BY id LIMIT 1", "all": ""}
PASSES = [f"S:locks:{which} B:calls S:rolls_back B:returns" for which in LOCKS]
IN_TURN, UNDONE = (f"{A} {B}", f"{B} {A}", A, *(f"{A} {each}" for each in PASSES)), (B, "", *PASSES)
ALLOWED = {"commit": IN_TURN, "rollback": UNDONE, "late": IN_TURN}
# Pairs that may be unlike these, by what the documents say.
DOCUMENTED = {
    "* act-*": "operations.md, each task once: Ready tasks that are put meanwhile may be among the last",
    "* worker,* fair*": "utubes.md: Other takes skip that utube meanwhile",
    "take* * mariadb repeatable-read late": "databases.md: Its snapshot may still show tasks as ready",
}
CONFLICT, RAW = "a conflict", "not of xq: "  # what a call raised, beside the names of xq's errors
PATIENCE = 0.3  # seconds after which B counts as one that waits: a take that finds nothing looks for a quarter of one


@dataclass(frozen=True)
class State(Call):
    """What is there before a pair. The task that both want is the one that is taken, else the first one."""

    call: Does = nothing
    by: str = "S"  # the process that brings it about, and owns what it takes
    later: float = 0  # seconds that pass afterwards


def _by_name(*lines: Any) -> dict[str, Any]:
    return {line.name: line for line in lines}


STATES: Mapping[str, State] = _by_name(
    State("ready", lambda w: w.put(3)),
    State("waiting", lambda w: w.put(delay=5).put(2)),
    State("due", lambda w: w.put(delay=5).put(2), later=10),
    State("taken", lambda w: w.put(3).take(), by="A"),
    State("taken-by-B", lambda w: w.put(3).take(), by="B"),
    State("taken-by-another", lambda w: w.put(3).take()),
    State("late", lambda w: w.put(3).take(ttr=5), by="A", later=10),
    State("late-of-B", lambda w: w.put(3).take(ttr=5), by="B", later=10),
    State("late-of-another", lambda w: w.put(3).take(ttr=5), later=10),
    State("dying", lambda w: w.put(ttl=5).put(2), features=calls.TIMED, later=10),
    State("buried", calls.buried),
    State("done", lambda w: w.put(3).take().do("ack", w.t[0])),
    State("parent", lambda w: chain(w).put(2), features=LINKED),
    State("parent-taken", lambda w: chain(w).put(2).take(), features=LINKED, by="A"),
    State("parent-taken-by-B", lambda w: chain(w).put(2).take(), features=LINKED, by="B"),
    State("member", lambda w: group(w).put(2), features=LINKED),
    State("last-member", lambda w: group(w, 1).put(2), features=LINKED),
    State("last-member-taken", lambda w: group(w, 1).put(2).take(), features=LINKED, by="A"),
    State("utube", calls.utubes, features=UTUBE),
    State("utube-taken", calls.of_utube, features=UTUBE, by="A"),
    State("utube-taken-by-B", calls.of_utube, features=UTUBE, by="B"),
    State("fair", calls.utubes, features=calls.FAIR),
    State("fair-taken", calls.of_utube, features=calls.FAIR, by="A"),
    State("rate", lambda w: w.put(3), features=calls.RATE),
    State("limit", lambda w: w.put(4), features=LIMIT),
    State("limit-taken", lambda w: w.put(5).take(), features=LIMIT, by="A"),
    State("unique", lambda w: calls.unique(w).put(2), features=UNIQUE),
    State("unique-taken", lambda w: calls.unique(w).put(2).take(), features=UNIQUE, by="A"),
    State("unique-done", lambda w: calls.unique(w).take().do("ack", w.t[0]).put(2), features=UNIQUE),
    State("paused", lambda w: w.put(3).do("pause")),
    State("schedule", lambda w: calls.scheduled(w.put(3), 5), later=7),
)

# What a process does: lines of CALLS, for `w.t[0]`, and others. In names of pairs there are no blanks.
_CALLS = """put|put, delay|put, skip|put, replace|put_many|put_many, chain|take|take_many|ack|ack, update|ack_many
release|release, delay|release_many|release_all|bury|bury_many|touch|touch_many|dig|kick|plow|kill
kill_many|cancel|cancel, to B|snatch|restart|call|truncate|act|group put|group kill|group dig
group pause|group resume|pause|resume|set_limit|set_limit, rate|every, again|unschedule|run_schedule
pause_schedule|resume_schedule|worker, returns|worker, raises|transaction|configure|recount|reset"""
ACTS: Mapping[str, Call] = {
    **{name.replace(", ", ",").replace(" ", "-"): CALLS[name] for name in _CALLS.replace("\n", "|").split("|")},
    **_by_name(
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
        Call("sweep", nothing, calls.sweep),
    ),
}


class Pair(NamedTuple):
    a: str
    b: str
    state: str
    engine: str
    level: str
    end: str

    def __str__(self) -> str:
        return " ".join(self)

    def matches(self, words: Sequence[str]) -> bool:
        left = iter(self)
        return all(any(fnmatchcase(each, word) for each in left) for word in words)


def pairs(engine: str) -> Iterator[Pair]:
    """Yield all pairs, with the acts that a state's features have."""
    where = [*product([engine], LEVELS if engine != "sqlite" else LEVELS[-1:], ENDS)]
    if engine != "postgres":
        where.remove((engine, "serializable", "late"))  # B waits for the reader
    for state in STATES.values():
        acts = [name for name, act in ACTS.items() if act.features.keys() <= state.features.keys()]
        yield from (Pair(a, b, state.name, *rest) for a, b, rest in product(acts, acts, where))


class Player(World):
    """A process of a run. What a step returns, None if nothing, goes through a pipe."""

    def __init__(self, address: Address, state: State, level: str) -> None:
        super().__init__(address, state.features)
        if self.engine != "sqlite":
            isolate(self.db, level.upper().replace("-", " "))
        self._state, self._open, self._is_lost = state, ExitStack(), False

    def finds(self, _: str) -> None:
        self._state.before(self)

    def meets(self, who: str) -> None:
        """Come to the task some time after that. It is known by its key, unless this process has taken it."""
        self.clock.tick(self._state.later)
        self._numbers = count(100 * "SAB".index(who))  # so names of what they put differ
        Task = self.q.model
        self.t = self.t or [Task.select(Task.id).order_by(Task.id).scalar()]

    def reads(self, _: str, which: str = "") -> None:
        self._open.enter_context(writing(self.db))
        self.db.execute_sql(f"SELECT id FROM task {which}").fetchall()

    def locks(self, which: str) -> None:
        if self.engine != "sqlite":  # there B passes over nothing
            self.reads("", f"{LOCKS[which]} FOR UPDATE")

    def acts(self, act: str) -> Any:
        if not self.db.in_transaction():
            self._open.enter_context(writing(self.db))
        return self.calls(act)

    def calls(self, act: str) -> Any:
        try:
            found = ACTS[act].call(self)
        except Exception as error:
            return self._failed(error)
        return _told([task for task in self.t if isinstance(task, pw.Model)] if found is self else found)

    def commits(self, _: str) -> Any:
        return self._ends(RuntimeError() if self._is_lost else None)

    def rolls_back(self, _: str) -> Any:
        return self._ends(RuntimeError())

    def _ends(self, error: Exception | None) -> Any:
        try:
            self._open.__exit__(type(error) if error else None, error, None)
        except Exception as raised:
            return None if raised is error else self._failed(raised)
        return None

    def _failed(self, error: Exception) -> str:
        if isinstance(error, xq.Error):
            return type(error).__name__
        self._is_lost = True
        return CONFLICT if is_conflict(error) else f"{RAW}{type(error).__name__}: {error}"


def _told(found: Any) -> Any:
    if isinstance(found, pw.Model):
        return {name: value for name, value in found.__data__.items() if name not in VOLATILE | KEYS}
    if isinstance(found, (list, tuple)):
        return [_told(each) for each in found] or None
    return (found or None) if isinstance(found, (int, str)) else None


def play(address: Address, a: str, b: str, state: str, level: str, order: str) -> dict[str, Any]:
    """Return what A and B returned. Then all processes are killed."""
    player, acts = Player(address, STATES[state], level), {"A": a, "B": b}

    def script() -> Generator[Any, Any, None]:
        answer: Any = None
        while True:
            step, what = yield answer
            answer = getattr(player, step)(what)

    signal.alarm(5 * STUCK)  # longer than those of Other, which leave none of these processes behind
    found: dict[str, Any] = dict.fromkeys("AB")
    with ExitStack() as stack:
        players = {who: Other(player.db, script) for who in sorted({*order, STATES[state].by} & {*"SAB"})}
        for other in players.values():
            stack.callback(other.kill)
            next(other)
        players[STATES[state].by].send(("finds", ""))
        for who, other in players.items():
            other.send(("meets", who))
        for who, step, *which in (each.split(":") for each in order.split()):
            if step != "returns":
                players[who].post((step, which[0] if which else acts.get(who)))
            if step == "calls":
                players[who].is_heard(PATIENCE)
            elif (answer := players[who].hear()) is not None:
                found[who] = answer
    return found


class Pairs:
    """Runs pairs on one kind of database, and counts the runs."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.runs = 0
        self._references: dict[tuple[str, ...], dict[str, Any]] = {}

    def run(self, pair: Pair, order: str) -> dict[str, Any]:
        """Return what both returned, and the digest after a fresh process has recovered."""
        address = self.home.fresh(STATES[pair.state])
        given = {"a": pair.a, "b": pair.b, "state": pair.state, "level": pair.level, "order": order}
        found = self.home.zygote.run("play", address=address, **given).result
        self.home.settle(address)
        self.runs += 1
        left = self.home.zygote.run("recover", address=address, name=pair.state, ledger=os.devnull).result
        return {**found, **left}

    def reference(self, pair: Pair, order: str) -> dict[str, Any]:
        key = (pair.state, order, pair.a * ("A:" in order), pair.b * ("B:" in order))
        if key not in self._references:
            self._references[key] = self.run(pair._replace(level=LEVELS[0]), order)
        return self._references[key]

    def finding(self, pair: Pair) -> str | None:
        """Return what does not hold: the command that repeats it, and how it differs from the most alike of those."""
        try:
            found = self.run(pair, ENDS[pair.end])
            allowed = UNDONE if found["A"] == CONFLICT else ALLOWED[pair.end]
            found |= {"A": None} if allowed is UNDONE else {}
            differs: list[str] = [f"{who}: {found[who]}" for who in "AB" if RAW in str(found[who])]
            for order in () if differs else allowed:
                lines = [*differences(self.reference(pair, order), found, order)]
                if not lines:
                    return None
                differs = min(differs or lines, lines, key=len)
            if RAW not in differs[0] and any(fnmatchcase(str(pair), f"{each}*") for each in DOCUMENTED):
                return None
        except AssertionError as stuck:
            differs = [str(stuck)]
        return "\n".join([f'make explore ARGS="pair {pair}"', *differs])


@contextmanager
def opened(engine: str) -> Iterator[Pairs]:
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Zygote()) as zygote,
        closing(HOMES[engine](engine, zygote, Path(folder))) as home,
    ):
        yield Pairs(home)


def main(words: Sequence[str]) -> int:
    """Print what does not hold of the pairs that match, and return how many do not."""
    wrong = 0
    for engine in HOMES:
        if chosen := [pair for pair in pairs(engine) if pair.matches(words)]:
            with opened(engine) as explorer:
                for found in filter(None, map(explorer.finding, chosen)):
                    wrong += 1
                    print(found, flush=True)
                print(f"{engine}: {len(chosen)} pairs, {explorer.runs} runs, {wrong} do not hold so far")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1].split()[1:])))
