"""The transitions of one queue as its history has them, followed by a process from its start on."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from xq.core.machine import READY, TAKEN
from xq.engine.inspection import LAST, Inspection
from xq.metrics.histogram import Histogram

AT_ONCE = 10_000  # transitions that one query reads
MOST = 20 * AT_ONCE  # transitions that one scrape reads; the next one goes on from there
LATE = 60.0  # seconds in which a transaction may commit after others whose transitions have greater ids
GAP = 1_000  # ids; a longer gap is a rollback, or pruned rows
KEPT = 200_000  # tasks of a state whose time of entry is kept; of more, the durations are not counted


class Transitions:
    """The durations of states, and the ready tasks by age, from the transitions of the history.

    The history has no index by task, so the times of entry are kept here: for tasks that entered a state after the
    start, or within the last transitions before it. Those before the start are counted only if `past` is True.
    """

    def __init__(self, inspection: Inspection, past: bool) -> None:
        self.takes, self.acks = Histogram(), Histogram()
        self.events: Counter[str] = Counter()
        self._inspection = inspection
        self._since: dict[str, OrderedDict[str, float]] = {READY: OrderedDict(), TAKEN: OrderedDict()}
        self._missing: dict[int, float] = {}  # ids that no commit has shown yet, and when to give them up
        newest = inspection.newest()
        self._counts_from = 0 if past else newest
        self._read = max(0, newest - LAST)  # the greatest id that was read

    def follow(self) -> None:
        """Read the transitions that were committed since the last call."""
        left = MOST
        while left > 0:
            low = min(self._missing, default=self._read + 1) - 1
            rows = self._inspection.rows_after(low, AT_ONCE)
            for row in self._new(rows):
                self._enter(row)
            left -= AT_ONCE
            if len(rows) < AT_ONCE:
                break
        if not rows and self._inspection.newest() < self._read:
            self._begin_anew()
        now = time.monotonic()
        self._missing = {id: until for id, until in self._missing.items() if until > now}

    def _begin_anew(self) -> None:
        """Begin at the first id, since the history is another one: the queue was uninstalled and installed again."""
        self._read = self._counts_from = 0
        self._missing.clear()
        for entered in self._since.values():
            entered.clear()

    def _new(self, rows: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
        until = time.monotonic() + LATE
        for row in rows:
            id = int(row["id"])
            if id <= self._read:
                if self._missing.pop(id, None) is not None:
                    yield row
                continue
            if 1 < id - self._read <= GAP:
                self._missing |= dict.fromkeys(range(self._read + 1, id), until)
            self._read = id
            yield row
        if len(rows) == AT_ONCE:  # a full page before the gaps must not be read for ever
            last = int(rows[-1]["id"])
            self._missing = {id: until for id, until in self._missing.items() if id > last}

    def _enter(self, row: Mapping[str, Any]) -> None:
        key, at, source, target = str(row["key"]), row["at_us"] / 1_000_000, row["source"], row["target"]
        counted = int(row["id"]) > self._counts_from
        entered = self._since[source].pop(key, None) if source in self._since else None
        if target in self._since and len(self._since[target]) < KEPT:
            self._since[target][key] = at
        if not counted:
            return
        self.events[str(row["event"])] += 1
        if entered is None:
            return
        if source == READY and target == TAKEN:
            self.takes.observe(at - entered)
        elif source == TAKEN and row["event"] == "ack":
            self.acks.observe(at - entered)

    def oldest_ready(self) -> float | None:
        """Return when the longest ready of the known tasks became so, in seconds since 1970; None if there is none."""
        return next(iter(self._since[READY].values()), None)

    def none_ready(self) -> None:
        """Forget the ready tasks: there are none, whatever the history lacks."""
        self._since[READY].clear()
