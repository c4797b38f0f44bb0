"""Cut each call at each statement, and judge by the product itself.

A program is what is there before a call, and the call. The reference is the program killed between two calls, with a
fresh process that recovers and works all off. A cut within the call must leave, after the same, the digest of before
or after it. If the call returned it is that of after, and if it is one transaction and raised, that of before.

`make explore ARGS="take sqlite kill 3 before"`: a pattern (fnmatch) of call, database and cut, or the beginning of one.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from tests.explore.calls import Call
from tests.explore.gate import Cut, cuts
from tests.explore.homes import HOMES, Home
from tests.explore.jobs import BROKEN
from tests.explore.judge import differences
from tests.explore.lives import PROGRAMS, Life
from tests.explore.zygote import Zygote

SAMPLE = 4  # cuts of a call where there is no time for all


class Run(NamedTuple):
    """How a program ended, what it sent, and what it left."""

    ended: str
    sent: Sequence[str]
    digest: dict[str, Any]


class Explorer:
    """Runs programs on one kind of database, and counts them."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.runs = 0

    def run(self, call: Call, cut: Cut | None = None, state: int = -1) -> Run:
        """Run a program up to the `state` of the call, or with a cut, and recover in a fresh process."""
        address, ledger = self.home.fresh(call), self.home.folder / "ledger"
        ledger.unlink(missing_ok=True)
        given = {"address": address, "name": call.name, "ledger": str(ledger)}
        ended = self.home.zygote.run("run", cut=cut, state=state, **given).result or {"ended": "killed", "sent": ()}
        self.home.settle(address)
        self.runs += 1
        return Run(ended["ended"], ended["sent"], self.home.zygote.run("recover", **given).result)

    def references(self, call: Call) -> dict[str, Run]:
        """Return the runs that are killed before the call, between its transactions if it has several, and after."""
        names = ["before", *(f"between {n}" for n, _ in enumerate(call.between or (), 1)), "after"]
        found = {name: self.run(call, state=state) for state, name in enumerate(names)}
        for name, each in found.items():
            what = f"{call.name} {self.home.engine}, {name}: {each.ended} {each.digest['wrong']}"
            ends = ("returned", "killed") if isinstance(call, Life) else ("returned",)
            assert each.ended in ends, what
            assert not each.digest["wrong"], what
        return found

    def findings(self, call: Call, choose: Callable[[list[Cut]], list[Cut]] = lambda cuts: cuts) -> Iterator[str]:
        """Yield what does not hold: the command that repeats it, where it was cut, and what differs."""
        references, engine = self.references(call), self.home.engine
        sent = references["after"].sent
        for cut in choose(list(cuts(engine, sent))):
            found, allowed = self.run(call, cut), [*references]
            if found.ended == "returned":
                allowed = ["after"]
                if isinstance(call, Life):  # it goes on after a cut
                    allowed = [name for name in [*references][1:] if references[name].ended == "returned"]
            elif found.ended.startswith("raised") and cut.kind != "lost" and call.between is None:
                allowed = ["before"]
            reached = found.ended == "killed" if cut.kind == "kill" else len(found.sent) >= cut.k
            holds = (reached or isinstance(call, Life)) and not found.ended.startswith(BROKEN)
            if not (holds and any(found.digest == references[name].digest for name in allowed)):
                told = [f'make explore ARGS="{call.name} {engine} {cut}"', f"  {found.ended}, cut at {sent[cut.k - 1]}"]
                differ = [list(differences(references[name].digest, found.digest, name)) for name in allowed]
                told = [*told, *min(differ, key=len)]
                yield "\n".join(told)


def sample(found: list[Cut], most: int = SAMPLE) -> list[Cut]:
    """Return some of the cuts of a call, the same each time: of all its length, the last one among them."""
    return found[:: -max(1, -(-len(found) // most))]


def main(pattern: str) -> int:
    """Print what does not hold of the cuts that match, and return how much it was."""
    name, on, cut = re.fullmatch(rf"(.*?)(?: ({'|'.join(HOMES)})(?: (.*))?)?", pattern).groups()  # type: ignore[union-attr]
    calls, wrong = [call for call in PROGRAMS.values() if fnmatchcase(call.name, name)], 0
    assert calls, f"no call matches {name}"

    def matching(found: list[Cut]) -> list[Cut]:
        return [each for each in found if fnmatchcase(f"{each} ", f"{cut or ''}*")]

    for engine in [on] if on else HOMES:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            zygote = stack.enter_context(closing(Zygote()))
            explorer = Explorer(stack.enter_context(closing(HOMES[engine](engine, zygote, folder))))
            for call in calls:
                begun, before = time.monotonic(), explorer.runs
                for found in explorer.findings(call, matching):
                    wrong += 1
                    print(found, flush=True)
                ran = explorer.runs - before
                each = (time.monotonic() - begun) / ran
                print(f"{call.name} {engine}: {ran} programs, {each:.2f} s each", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(" ".join(sys.argv[1:]) or "*")))
