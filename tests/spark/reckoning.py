"""The tables of a report once more, in plain Python, as their descriptions say it: what the real ones must equal.

A history is a list of dictionaries with queue, id, at_us, key, tube, source, target, event and attempt; a task that is
there, one with queue, key, tube and state (a letter); one that is buried, one with queue, key and error.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]
Table = set[tuple[Any, ...]]

NAMES = {"R": "Ready", "T": "Taken", "W": "Waiting", "B": "Buried", "Z": "Zombie", "D": "Done"}
LENGTHS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def nearest(percent: int, values: Sequence[int]) -> int:
    """The least value with at least so many percent of the values at or below it."""
    return next(v for v in sorted(values) if 100 * sum(1 for w in values if w <= v) >= percent * len(values))


def summary(values: Sequence[int]) -> tuple[Any, ...]:
    return (len(values), *(nearest(percent, values) / 1e6 for percent in (50, 90, 99)), max(values) / 1e6)


def ended(row: Row) -> str | None:
    """How the task of a row ended with it."""
    if row["source"] in "XDZ":
        return None
    if row["target"] in "DZ":
        return "done"
    if row["target"] == "B":
        return "buried" if row["source"] != "B" else None
    if row["target"] != "X":
        return None
    return {"ack": "done", "ttl": "expired", "lifetime": "expired"}.get(row["event"], "killed")


def begins(row: Row) -> bool:
    return row["source"] in "XDZ" and row["target"] in "RTWB"


def took(row: Row) -> bool:
    return bool(row["target"] == "T" != row["source"])


class Reckoning:
    def __init__(
        self,
        history: Iterable[Row],
        live: Sequence[Row],
        since: int,
        until: int,
        now: int,
        buried: Iterable[Row] = (),
    ) -> None:
        self.errors = {(task["queue"], task["key"]): task["error"] for task in buried}
        self.since, self.until, self.now = since, until, now
        self.history = sorted(history, key=lambda row: row["id"])
        self.tasks: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.history:
            self.tasks[row["queue"], row["key"]].append(row)
        self.live = {(task["queue"], task["key"]) for task in live}
        self.silent = [task for task in live if (task["queue"], task["key"]) not in self.tasks]
        seconds = (until - since) / 1e6
        self.unit = next((unit for unit, length in LENGTHS.items() if seconds <= 600 * length), "day")

    def inside(self, row: Row) -> bool:
        return bool(self.since <= row["at_us"] < self.until)

    def bucket(self, at_us: int) -> datetime:
        return moment(at_us // (LENGTHS[self.unit] * 10**6) * LENGTHS[self.unit] * 10**6)

    def within(self) -> list[Row]:
        return [row for row in self.history if self.inside(row)]

    def throughput(self) -> Table:
        columns = ("put", "taken", "done", "buried", "killed", "expired")
        counts: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
        for row in self.within():
            count = counts[row["queue"], row["tube"], self.unit, self.bucket(row["at_us"])]
            count["put"] += row["source"] == "X" and row["target"] in "RTWB"
            count["taken"] += took(row)
            count[ended(row) or "nothing"] += 1
        found = {(*place, *(count[name] for name in columns)) for place, count in counts.items()}
        return {row for row in found if any(row[4:])}

    def stays(self) -> list[tuple[Row, int]]:
        """The rows in the span that end a stay whose beginning is known, and its length in µs."""
        found = []
        for rows in self.tasks.values():
            for before, row in pairwise(rows):
                if self.inside(row) and before["target"] == row["source"] != "X":
                    found.append((row, max(0, row["at_us"] - before["at_us"])))
        return found

    def states(self) -> Table:
        lengths = defaultdict(list)
        for row, us in self.stays():
            lengths[row["queue"], row["tube"], NAMES[row["source"]]].append(us)
        return {(*place, *summary(values)) for place, values in lengths.items()}

    def of_lives(self) -> list[tuple[Row | None, list[Row]]]:
        """Every life of every task: the row that began it, where it is known, and all its rows."""
        found: list[tuple[Row | None, list[Row]]] = []
        for rows in self.tasks.values():
            found.append((None, []))
            for row in rows:
                if begins(row):
                    found.append((row, []))
                found[-1][1].append(row)
        return found

    def done(self) -> list[tuple[Row, int]]:
        """The rows in the span with which a task was done whose put is known, and the µs since."""
        return [
            (row, max(0, row["at_us"] - first["at_us"]))
            for first, rows in self.of_lives()
            for row in rows
            if first is not None and ended(row) == "done" and self.inside(row)
        ]

    def lives(self) -> Table:
        lengths = defaultdict(list)
        for row, us in self.done():
            lengths[row["queue"], row["tube"]].append(us)
        return {(*place, *summary(values)) for place, values in lengths.items()}

    def overall(self) -> Table:
        lengths = defaultdict(list)
        for row, us in self.stays():
            lengths[row["queue"], NAMES[row["source"]]].append(us)
        for row, us in self.done():
            lengths[row["queue"], "put to done"].append(us)
        return {(*place, *summary(values)) for place, values in lengths.items()}

    def ends(self) -> list[tuple[Row, int]]:
        """The last end in the span of each life, and how often the task had been taken until then."""
        found = []
        for first, rows in self.of_lives():
            ends = [i for i, row in enumerate(rows) if ended(row) and self.inside(row)]
            if ends:
                takes = sum(map(took, rows[: ends[-1] + 1]))
                if first is None:
                    takes = max(takes, rows[ends[-1]]["attempt"] or 0)
                found.append((rows[ends[-1]], takes))
        return found

    def retries(self) -> Table:
        counts = Counter((row["queue"], row["tube"], takes) for row, takes in self.ends())
        return {(*place, n) for place, n in counts.items()}

    def shares(self) -> Table:
        outcomes = defaultdict(list)
        for row, _ in self.ends():
            outcomes[row["queue"], row["tube"]].append(ended(row))
        kinds = ("done", "buried", "expired", "killed")
        return {(*at, *(found.count(kind) / len(found) for kind in kinds)) for at, found in outcomes.items()}

    def stands(self, states: str = "RW") -> list[tuple[tuple[str, str | None], float, float, bool]]:
        """Who was in these states where, from when to when, whether it left: (queue, tube), µs, µs; unknown: 0, inf."""
        found: list[tuple[tuple[str, str | None], float, float, bool]] = []
        found += [((t["queue"], t["tube"]), 0, math.inf, False) for t in self.silent if t["state"] in states]
        for (queue, _), rows in self.tasks.items():
            place, start = None, 0
            if rows[0]["source"] in states:
                place = rows[0]["tube"]
                waits = True
            else:
                waits = False
            for row in rows:
                stays = row["target"] in states and waits and row["tube"] == place
                if waits and not stays:
                    found.append(((queue, place), start, row["at_us"], True))
                if row["target"] in states and not stays:
                    start = row["at_us"]
                waits, place = row["target"] in states, row["tube"]
            if waits:
                found.append(((queue, place), start, math.inf, False))
        return found

    def backlog(self) -> Table:
        found = set()
        length = LENGTHS[self.unit] * 10**6
        places = defaultdict(list)
        for place, start, end, _ in self.stands():
            places[place].append((start, end))
        ready = defaultdict(list)
        for place, start, end, _ in self.stands("R"):
            ready[place].append((start, end))
        first = self.since // length * length
        for place, stands in places.items():
            for low in range(first, self.until, length):
                high = min(low + length, self.until)
                arrived = sum(1 for start, _ in stands if max(low, self.since) <= start < high and start)
                departed = sum(1 for _, end in stands if max(low, self.since) <= end < high)
                waiting = sum(1 for start, end in stands if start < high) - sum(1 for _, end in stands if end < high)
                level = sum(1 for start, _ in ready[place] if start < high) - sum(
                    1 for _, end in ready[place] if end < high
                )
                moved = any(max(low, self.since) <= at < high for stand in ready[place] for at in stand)
                if arrived or departed or (waiting and (low == first or moved)):
                    found.add((*place, moment(low), arrived, departed, waiting, level))
        return found

    def stuck(self) -> Table:
        of_tube = {row[:3]: row[6] for row in self.states()}
        of_queue = {row[:2]: row[5] for row in self.overall()}
        begun: dict[str, int] = {}
        for row in self.history:
            begun[row["queue"]] = min(row["at_us"], begun.get(row["queue"], row["at_us"]))
        there = [
            (rows[-1], rows[-1]["target"], rows[-1]["at_us"], True)
            for key, rows in self.tasks.items()
            if key in self.live
        ]
        there += [(task, task["state"], begun[task["queue"]], False) for task in self.silent if task["queue"] in begun]
        found = set()
        for row, state, at_us, known in there:
            if state not in "RT":
                continue
            place = (row["queue"], row["tube"], NAMES[state])
            limit = of_tube.get(place, of_queue.get((row["queue"], NAMES[state]), math.inf)) * 3
            seconds = (self.now - at_us) / 1e6
            if seconds > limit:
                found.add((row["queue"], row["key"], NAMES[state], moment(at_us) if known else None, seconds))
        return found

    def failures(self) -> Table:
        found = defaultdict(list)
        for place, rows in self.tasks.items():
            row = rows[-1]
            if row["target"] == "B" and self.inside(row) and place in self.errors:
                error = (self.errors[place] or "").strip().partition("\n")[0].strip() or None
                found[row["queue"], row["tube"], error].append(row["at_us"])
        return {(*place, len(times), moment(max(times))) for place, times in found.items()}

    def transitions(self) -> Table:
        counts = Counter(
            tuple(row[name] for name in ("queue", "tube", "source", "target", "event")) for row in self.within()
        )
        return {(*place, n) for place, n in counts.items()}
