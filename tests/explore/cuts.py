"""Cut each call at each statement, and judge by the product itself.

A program is what is there before a call, and the call. The reference is the program killed between two calls, with a
fresh process that recovers and works all off. A cut within the call must leave, after the same, the digest of before
or after it. If the call returned it is that of after, and if it is one transaction and raised, that of before.

`make explore ARGS="ack sqlite kill 3 before"`: a pattern (fnmatch) of call, database and cut, or the beginning of one.
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

from tests.explore.calls import CALLS, Call
from tests.explore.gate import Cut, cuts
from tests.explore.homes import HOMES, Home
from tests.explore.zygote import Zygote

SHOWN = 400  # characters of a part of a digest
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

    def references(self, call: Call) -> list[Run]:
        """Return the runs that are killed before the call, between its transactions if it has several, and after."""
        found = [self.run(call, state=state) for state in range(len(call.states))]
        for each in found:
            assert each.ended == "returned", f"{call.name} {self.home.engine}: {each.ended}"
            assert not each.digest["wrong"], f"{call.name} {self.home.engine}: {each.digest['wrong']}"
        return found

    def findings(self, call: Call, choose: Callable[[list[Cut]], list[Cut]] = lambda cuts: cuts) -> Iterator[str]:
        """Yield what does not hold: the program, and the command that repeats it."""
        references = self.references(call)
        *_, (_, sent, _) = references
        for cut in choose(list(cuts(self.home.engine, sent))):
            found, allowed = self.run(call, cut), references
            if found.ended == "returned":
                allowed = references[-1:]
            elif found.ended.startswith("raised") and cut.kind != "lost" and call.between is None:
                allowed = references[:1]
            if not any(found.digest == each.digest for each in allowed):
                differs = "".join(f"\n{line}" for each in allowed for line in _differences(each.digest, found.digest))
                yield (
                    f'make explore ARGS="{call.name} {self.home.engine} {cut}"\n'
                    f"{found.ended}, cut at {sent[cut.k - 1]}{differs}"
                )


def _differences(reference: dict[str, Any], digest: dict[str, Any]) -> Iterator[str]:
    for part in reference:
        if reference[part] != digest[part]:
            yield f"  {part}: {str(digest[part])[:SHOWN]}\n    not {str(reference[part])[:SHOWN]}"


def sample(found: list[Cut]) -> list[Cut]:
    """Return some of the cuts of a call, the same each time: of all its length, the last one among them."""
    return found[:: -max(1, -(-len(found) // SAMPLE))]


def main(pattern: str) -> int:
    """Print what does not hold of the cuts that match, and how many programs there were. Return how much it was."""
    name, on, cut = re.fullmatch(rf"(.*?)(?: ({'|'.join(HOMES)})(?: (.*))?)?", pattern).groups()  # type: ignore[union-attr]
    wrong = 0
    for engine in [on] if on else HOMES:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            zygote = stack.enter_context(closing(Zygote()))
            explorer = Explorer(stack.enter_context(closing(HOMES[engine](engine, zygote, folder))))
            begun = time.monotonic()
            for call in [call for call in CALLS.values() if fnmatchcase(call.name, name)]:
                for found in explorer.findings(
                    call, lambda cuts: [each for each in cuts if fnmatchcase(f"{each} ", f"{cut or ''}*")]
                ):
                    wrong += 1
                    print(found, flush=True)
            each = (time.monotonic() - begun) / max(1, explorer.runs)
            print(f"{engine}: {explorer.runs} programs, {each:.2f} s each, {wrong} do not hold")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(" ".join(sys.argv[1:]) or "*")))
