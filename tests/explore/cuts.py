"""Cut each call at each statement, and judge by the product itself.

A program brings about a state and makes a call. Killed before or after the call, and recovered by a fresh process, it
gives the references. A program that is cut within the call must leave the digest of one of the two: that of after if
the call returned; that of before if the call is one transaction and raised.

`make explore ARGS="take sqlite kill 3 before"`: a pattern (fnmatch) of program, database and cut, or its beginning.
`make explore ARGS="pair ack kill * postgres"`: the same for a pair, a database, an isolation level and A's end.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.explore import pairs
from tests.explore.calls import Call
from tests.explore.gate import Cut, cuts
from tests.explore.homes import HOMES, Home, Run, nothing
from tests.explore.jobs import BROKEN, PROGRAMS
from tests.explore.judge import closest
from tests.explore.lives import Life
from tests.explore.zygote import Zygote

SAMPLE = 4  # cuts of a call where there is no time for all


def references(home: Home, call: Call) -> dict[str, Run]:
    """Return the runs that are killed before the call, between its transactions if it has several, and after."""
    names = ["before", *(f"between {n}" for n, _ in enumerate(call.between or (), 1)), "after"]
    found = {name: home.run("run", call, state=state) for state, name in enumerate(names)}
    for name, each in found.items():
        what = f"{name}: {each.ended} {each.digest['wrong']}"
        assert each.ended == "returned" or (each.ended == "killed" and isinstance(call, Life)), what
        assert not each.digest["wrong"], what
    may_be_same = call.between == () or call.recovers is not nothing or "put, skip" in call.name
    may_be_same |= "put, rolled back" in call.name
    may_be_same |= home.engine in ("mariadb", "mysql")  # where what is left is read after the maintenance
    assert may_be_same or found["before"].digest != found["after"].digest, "the call leaves nothing that is looked at"
    return found


def findings(home: Home, call: Call, choose: Callable[[list[Any]], list[Any]] = list) -> Iterator[str]:
    """Yield what does not hold: the command that repeats it, where it was cut, and what differs."""
    command = f'make explore ARGS="{call.name} {home.engine}'
    try:
        known = references(home, call)
        for cut in choose([*cuts(home.engine, known["after"].sent)]):
            if differ := finding(home, call, cut, known):
                yield "\n".join([f'{command} {cut}"', f"  cut at {known['after'].sent[cut.k - 1]}", *differ])
    except AssertionError as broken:
        yield f'{command}"\n  {broken}'


def finding(home: Home, call: Call, cut: Cut, known: Mapping[str, Run]) -> list[str]:
    """Return how a run with a cut differs from the closest reference that is allowed: an empty list if it is one."""
    found, allowed = home.run("run", call, cut=cut), [*known]
    if found.ended == "returned":
        allowed = ["after"]
        if isinstance(call, Life):  # it goes on after a cut
            allowed = [name for name in [*known][1:] if known[name].ended == "returned"]
        elif found.told != known["after"].told:
            return [f"  it returned {found.told}, not {known['after'].told}"]
    elif found.ended.startswith("raised") and cut.kind != "lost" and call.between is None:
        allowed = ["before"]
    differ = closest(found.digest, ((name, known[name].digest) for name in allowed))
    is_reached = len(found.sent) >= cut.k or call.varies or isinstance(call, Life)
    gave_up = cut.kind == "conflict" and not call.block and found.ended.startswith("raised")
    holds = not (differ or gave_up or found.ended.startswith(BROKEN)) and is_reached
    return [] if holds else [f"  {found.ended}", *differ]


def sample(found: list[Any], most: int = SAMPLE) -> list[Any]:
    """Return some of the cuts of a call, the same each time: of all its length, the last one among them."""
    return found[:: -max(1, -(-len(found) // most))]


@contextmanager
def opened(engine: str) -> Iterator[Home]:
    with tempfile.TemporaryDirectory() as folder, closing(Zygote()) as zygote:
        with closing(HOMES[engine](engine, zygote, Path(folder))) as home:
            yield home


def main(pattern: str) -> int:
    """Print what does not hold of the cuts and pairs that match, and return how much it was."""
    name, on, rest = re.fullmatch(rf"(.*?)(?: ({'|'.join(HOMES)})(?: (.*))?)?", pattern).groups()  # type: ignore[union-attr]
    is_pair = name.startswith("pair ")
    every: Any = pairs.PAIRS if is_pair else PROGRAMS.values()
    programs, chosen, wrong = [each for each in every if fnmatchcase(each.name, name)], list[Any](), 0
    assert programs, f"no program matches {name}"

    def matching(found: list[Any]) -> list[Any]:
        chosen.extend(new := [each for each in found if fnmatchcase(f"{each} ", f"{rest or ''}*")])
        return new

    for engine in [on] if on else HOMES:
        with opened(engine) as home:
            for program in programs:
                begun, before = time.monotonic(), home.runs
                for found in (pairs.findings if is_pair else findings)(home, program, matching):
                    wrong += 1
                    print(found, flush=True)
                print(
                    f"{program.name} {engine}: {home.runs - before} programs, {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    assert not rest or chosen, f"no cut matches {rest}"
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(" ".join(sys.argv[1:]) or "*")))
