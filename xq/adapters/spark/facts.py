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
us              µs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from xq.adapters.spark.moves import BACKLOG, READY, Span, is_

PERCENTILES = (50, 90, 99)
BINS = 200  # for each factor of e: a bin is half a percent wide
BIN = f"floor(log1p(us) * {BINS})"  # the bin for an integer from 0 on: bins grow with the values

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
        rows = self.dated.where("era <> 'early'")
        stays = rows.where("stay IS NOT NULL").withColumnRenamed("stay", "us").select(*TIMED)
        lives = rows.where("outcome = 'done' AND lived IS NOT NULL")
        return stays.unionByName(lives.selectExpr("queue", "tube", "era", f"'{LIFE}' AS source", "lived AS us"))


def facts(past: Past) -> DataFrame:
    """Return the facts, with the columns KEYS, SUMS and us."""
    dated = past.dated
    rows = dated.where("era IS NOT NULL").selectExpr(*_fact(MOVED))
    rows = rows.unionByName(past.timed.selectExpr(*_fact(LASTED)))
    structs = [f"IF({when}, struct({', '.join(_fact(columns))}), NULL)" for when, columns in SOME]
    some = dated.where(" OR ".join(when for when, _ in SOME))
    rows = rows.unionByName(some.selectExpr(f"inline(filter(array({', '.join(structs)}), fact -> fact IS NOT NULL))"))
    return rows.groupBy(*KEYS).agg(*(F.sum(name).alias(name) for name in SUMS), F.max("us").alias("us"))


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
LASTED = {"kind": "'lasted'", "era": "era", "source": "source", "us": "us", "number": BIN}
REPLACED = "IF(era = 'now', instead, instead_before)"
# Facts that only some rows have: the condition, and the columns.
SOME = (
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


def ranks(values: DataFrame, bins: DataFrame, by: Sequence[str], part: str) -> DataFrame:
    """Return the percentiles of integers per group and per part: `by`, whole, `part`, n, p50, p90, p99, most.

    `values` has the columns `by`, `part` and us; `bins` counts them: `by`, `part`, bin, here, most. A whole group's row
    has `whole`, and no part.

    A percentile is the nearest rank: the least given value with at least so many percent at or below it. Only values
    in bins that contain a percentile are sorted. So no group is ever sorted or held in memory completely. The bins are
    few, and one task reads them.
    """
    group = f"struct({', '.join(by)}, whole, IF(whole, NULL, {part}) AS {part})"  # nulls in a struct compare as equal
    counted = (
        bins.coalesce(1)
        .selectExpr("*", "explode(array(true, false)) AS whole")
        .selectExpr(f"{group} AS group", "bin", "here", "most")
        .groupBy("group", "bin")
        .agg(F.sum("here").alias("here"), F.max("most").alias("most"))
        .selectExpr(
            *("group", "bin", "here"),
            "sum(here) OVER (PARTITION BY group) AS n",
            "max(most) OVER (PARTITION BY group) AS most",
            "sum(here) OVER (PARTITION BY group ORDER BY bin) AS upto",
        )
    )
    # rank: the percentile's within its bin, from 1; an integer, so exact
    wanted = (
        counted.selectExpr("*", f"explode(array{PERCENTILES}) AS percent")
        .selectExpr("*", "ceil(percent * n / 100) - upto + here AS rank")
        .where("rank BETWEEN 1 AND here")
    )
    binned = values.selectExpr(*by, part, f"{BIN} AS of_bin", "us", "explode(array(true, false)) AS whole").selectExpr(
        f"{group} AS of_group", "of_bin", "us"
    )
    found = (
        binned.join(wanted, F.expr("of_group = group AND of_bin = bin"))
        .groupBy("group", "n", "most", "percent", "rank", "us")
        .agg(F.count("*").alias("same"))
        .coalesce(1)
        .selectExpr("*", "sum(same) OVER (PARTITION BY group, percent ORDER BY us) AS upto")
        .where("upto >= rank")
    )
    least = {f"p{percent}": F.expr(f"min(IF(percent = {percent}, us, NULL))") for percent in PERCENTILES}
    summary = found.groupBy("group", "n", "most").agg(*(column.alias(name) for name, column in least.items()))
    return summary.select("group.*", "n", *least, "most")
