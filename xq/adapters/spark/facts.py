"""A report's facts: sums over the history from which all its tables follow. A group has one row, and parts add up.

queue, tube     where
kind            one of:
                moved     transitions: source, target, event, outcome
                changed   further changes to the backlog: tasks from before the history, and tube changes
                ended     lives by their last end in the span: outcome, and in `number` how often the task was taken
                lasted    ended stays (source is the state) and lives (source is LIFE), by bins of their length:
                          `number` is the bin, `us` the longest one
                failed    tasks buried in the span and Buried now: `event` is the error, `us` the last time
                waiting   tasks Ready at the span's end: -`us` is since when; null: before the history
era             when: "early", before the reported spans; "before", in the span before; "now", in the span
slot            when the bucket in the span begins, in µs since 1970
n               how many; less than 0 for an end that a later end of the same life replaced
arrived, departed, readied, unreadied
                how many tasks entered and left the backlog, and entered and left Ready
us, least       µs: the most and the least
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from xq.adapters.spark.moves import BACKLOG, READY, Span, is_

PERCENTILES = (50, 90, 99)
BINS = 200  # for each factor of e: a bin is half a percent wide
LIFE = "put to done"
KEYS = {
    **dict.fromkeys(("queue", "tube", "kind", "era", "source", "target", "event", "outcome"), "string"),
    **dict.fromkeys(("slot", "number"), "bigint"),
}
SUMS = ("n", "arrived", "departed", "readied", "unreadied")
TIMED = ("queue", "tube", "era", "source", "us")  # columns for how long stays and lives lasted

SAME_TUBE = "was_tube <=> tube"
DATED = {"era": "era", "slot": "slot"}
WAY = {name: f"IF(era <> 'early', {name}, NULL)" for name in ("source", "target", "event", "outcome")}


def bin_of(us: str) -> str:
    """Return the expression for the bin of an integer from 0 on: bins grow with the values."""
    return f"floor(log1p({us}) * {BINS})"


@dataclass(frozen=True)
class Past:
    """What the facts are taken from: the rows from `moves`, the span, and the span before it if it is compared."""

    moves: DataFrame
    span: Span
    before: Span | None

    @property
    def dated(self) -> DataFrame:
        """The rows with their era (null after the span) and slot."""
        since, until = self.span.since, self.span.until
        earlier = f"WHEN at_us >= {self.before.since} THEN 'before'" if self.before else ""
        return self.moves.selectExpr(
            "*",
            f"CASE WHEN at_us >= {until} THEN NULL WHEN at_us >= {since} THEN 'now' {earlier} "
            "WHEN at_us IS NOT NULL THEN 'early' END AS era",
            f"IF({self.span.has}, {self.span.slot_of('at_us')}, NULL) AS slot",
            f"{self.span.has} AS within",
        )

    @property
    def timed(self) -> DataFrame:
        """The ended stays and the done lives, with the columns TIMED."""
        stays = self.dated.where(STAYED).withColumnRenamed("stay", "us").select(*TIMED)
        lives = self.dated.where(LIVED)
        return stays.unionByName(lives.selectExpr("queue", "tube", "era", f"'{LIFE}' AS source", "lived AS us"))


def facts(past: Past) -> DataFrame:
    """Return the facts, with the columns KEYS, SUMS, us and least."""
    structs = [f"IF({when}, struct({', '.join(_fact(columns))}), NULL)" for when, columns in FACTS]
    rows = past.dated.selectExpr(f"inline(array({', '.join(structs)}))").where("kind IS NOT NULL")
    return rows.groupBy(*KEYS).agg(
        *(F.sum(name).alias(name) for name in SUMS), F.max("us").alias("us"), F.min("us").alias("least")
    )


def _fact(given: Mapping[str, str]) -> list[str]:
    """Return a fact's columns. One that is not given is null, or 0 for a sum; `n` is 1."""
    given = {"queue": "queue", "tube": "tube", "n": "1", **dict.fromkeys(SUMS[1:], "0"), **given}
    types = {**KEYS, **dict.fromkeys((*SUMS, "us"), "bigint")}
    return [f"CAST({given.get(name, 'NULL')} AS {of}) AS {name}" for name, of in types.items()]


# A row's facts, by the column.
MOVED = {
    **DATED,
    **WAY,
    "kind": "'moved'",
    "arrived": "arrives",
    "readied": "readied",
    "departed": f"{SAME_TUBE} AND departs",
    "unreadied": f"{SAME_TUBE} AND unreadied",
}
LASTED = {"kind": "'lasted'", "era": "era"}
STAYED = "era <> 'early' AND stay IS NOT NULL"
LIVED = "era <> 'early' AND outcome = 'done' AND lived IS NOT NULL"
REPLACED = "IF(era = 'now', instead, instead_before)"
# A row's facts: the condition, and the columns.
FACTS = (
    ("era IS NOT NULL", MOVED),
    (STAYED, {**LASTED, "source": "source", "us": "stay", "number": bin_of("stay")}),
    (LIVED, {**LASTED, "source": f"'{LIFE}'", "us": "lived", "number": bin_of("lived")}),
    (
        "outcome IS NOT NULL AND era <> 'early'",
        {"kind": "'ended'", "era": "era", "outcome": "outcome", "number": "takes"},
    ),
    (
        f"outcome IS NOT NULL AND era <> 'early' AND {REPLACED} IS NOT NULL",
        {
            "kind": "'ended'",
            "era": "era",
            "n": "-1",
            "tube": f"{REPLACED}.tube",
            "outcome": f"{REPLACED}.outcome",
            "number": f"{REPLACED}.takes",
        },
    ),
    (
        f"NOT ({SAME_TUBE}) AND (departs OR unreadied) AND era IS NOT NULL",
        {**DATED, "kind": "'changed'", "tube": "was_tube", "departed": "departs", "unreadied": "unreadied"},
    ),
    (
        is_("early", BACKLOG),
        {"kind": "'changed'", "era": "'early'", "arrived": "1", "readied": is_("early", READY)},
    ),
    (
        "last AND buried AND target = 'B' AND within",
        {"kind": "'failed'", "era": "'now'", "event": "error", "us": "at_us"},
    ),
    (
        f"{is_('target', READY)} AND (latest OR silent)",
        {"kind": "'waiting'", "slot": "IF(silent, 0, NULL)", "us": "-at_us"},
    ),
)


# percentiles: exact, for any number of values, in bounded memory

Bin = tuple[int, int, int]  # of values: how many, the least, the greatest


class CheckedCall(NamedTuple):
    """A value that is asked for: the `rank`-th of those in a bin, of a tube or of a whole queue. `i` is its number."""

    i: int
    of_queue: str
    of_tube: str | None
    whole: bool
    of_era: str
    of_source: str
    bin: int
    rank: int


ASKED = pa.schema(
    zip(
        CheckedCall._fields,
        (pa.int32(), pa.string(), pa.string(), pa.bool_(), pa.string(), pa.string(), pa.int64(), pa.int64()),
    )
)


def added(bins: dict[int, Bin], number: int, more: Bin) -> None:
    n, least, most = bins.get(number, (0, more[1], more[2]))
    bins[number] = n + more[0], min(least, more[1]), max(most, more[2])


def places(bins: Mapping[int, Bin]) -> list[tuple[int | None, int, int]]:
    """Return for each percentile its value, its bin and its rank there, from 1. It is None if the bins do not tell it.

    A percentile is the nearest rank: the least value with at least so many percent at or below it.
    """
    found, upto, ordered = list[tuple[int | None, int, int]](), 0, iter(sorted(bins.items()))
    n = sum(here for here, _, _ in bins.values())
    for percent in PERCENTILES:
        wanted = -(-percent * n // 100)  # an integer, so exact
        while upto < wanted:
            number, (here, least, most) = next(ordered)
            upto += here
        rank = wanted - upto + here
        known = most if rank == here else least if rank == 1 or least == most else None
        found.append((known, number, rank))
    return found


def values(timed: DataFrame, asked: Sequence[CheckedCall]) -> dict[int, int]:
    """Return the values that are asked for, by their numbers, from rows with the columns TIMED.

    Only the values in those bins are sorted, so no group is ever sorted or held in memory completely.
    """
    table = pa.Table.from_pylist([one._asdict() for one in asked], schema=ASKED)
    same = "queue = of_queue AND era = of_era AND source = of_source AND (whole OR tube <=> of_tube)"
    found = (
        timed.join(F.broadcast(timed.sparkSession.createDataFrame(table)), F.expr(f"{same} AND {bin_of('us')} = bin"))
        .groupBy("i", "rank", "us")
        .agg(F.count("*").alias("same"))
        .selectExpr("*", "sum(same) OVER (PARTITION BY i ORDER BY us) AS upto")
        .where("upto >= rank")
    )
    return dict(found.groupBy("i").agg(F.min("us")).collect())
