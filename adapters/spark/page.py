"""The page of a report: one self-contained file, computed from the tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from xq.adapters.spark.moves import COUNTED
from xq.adapters.spark.verdicts import THRESHOLDS, verdicts

SHOWN = {
    "queues": 30,
    "tubes": 12,
    "stuck": 50,
    "transitions": 60,
    "retries": 100,
    "failures": 12,
}  # at most: queues, and per queue
KINDS = ("done", "buried", "expired", "killed")
RANKS = ("n", "p50", "p90", "p99", "max")
LEVELS = ("base", "backlog", "ready_base", "ready", "readied")
FIGURES = (*COUNTED, "ended", "missed", "again", *LEVELS, "lived", "lived_p99", "ready_p90")  # of the previous span


def page(
    names: Sequence[str],
    tables: Mapping[str, DataFrame],
    span: tuple[int, int, int],
    unit: str,
    meanings: Mapping[str, str],
    thresholds: Mapping[str, float],
    silent: Mapping[str, str],
) -> str:
    """Return the page for the queues of these names as HTML.

    `tables` are those of a report, with levels, oldest, begun, and figures: those of the previous span if the report
    compares with one. `silent` has the queues without errors, and what they lack.

    The page reads only sums and the first rows: the first 30 queues, and for each one number per bucket, 12 tubes and
    50 stuck tasks. `span` is from, until and now, in µs since 1970.
    """
    shown = list(names)[: SHOWN["queues"]]
    of = {name: table.where(F.col("queue").isin(shown)) for name, table in tables.items()}
    found = {name: _by_queue(rows) for name, rows in _rows(of, thresholds).items()}
    queues = [_queue(name, {what: rows.get(name, []) for what, rows in found.items()}) for name in shown]
    begun, figures = found["begun"], found.get("figures")
    for queue in queues:
        name, since, length = queue["name"], span[0], span[1] - span[0]
        queue["verdicts"] = verdicts(queue, thresholds)
        queue["silent"] = silent.get(name)
        queue["begun"] = begun[name][0][0] / 1e6 if name in begun else None
        known = figures is not None and name in begun and begun[name][0][0] <= since - length
        row = figures[name][0] if known and figures and name in figures else []
        queue["before"] = dict(zip(FIGURES, row or [None] * len(FIGURES), strict=True)) if known else None
    data = {
        **{name: us / 1e6 for name, us in zip(("since", "until", "now"), span, strict=True)},
        "unit": unit,
        "left": len(names) - len(shown),
        "meanings": list(meanings.items()),
        "compared": figures is not None,
        "thresholds": {
            name: [thresholds[name], threshold.unit, threshold.meaning] for name, threshold in THRESHOLDS.items()
        },
        "queues": queues,
    }
    # imported here, since Spark's workers import this package without needing it
    from plotly.offline import get_plotlyjs

    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # Only `<` could end the script element; JSON has another way to write it.
    values = json.dumps(data).replace("<", "\\u003c")
    head, rest = template.split("/*PLOTLY*/")
    middle, end = rest.split("/*DATA*/")
    return "".join([head, get_plotlyjs(), middle, values, end])


def _rows(of: Mapping[str, DataFrame], thresholds: Mapping[str, float]) -> dict[str, DataFrame]:
    """Return the rows that the page shows; the first column is the queue."""
    enough = thresholds["tube_tasks"]
    tube = ["queue", "tube"]
    sums = [F.sum(name).alias(name) for name in COUNTED]
    bucket = F.unix_timestamp("bucket").alias("bucket")
    in_order = Window.partitionBy(*tube).orderBy("bucket")
    change = F.col("ready") - F.lag("ready", 1, 0).over(in_order)  # the first bucket includes what was Ready already
    levels = of["levels"]
    busy = of["throughput"].groupBy(*tube).agg(*sums).alias("a")
    same = (F.col("a.queue") == F.col("b.queue")) & F.col("a.tube").eqNullSafe(F.col("b.tube"))
    busiest = busy.join(levels.alias("b"), same, "left").select("a.*", F.coalesce("backlog", F.lit(0)).alias("backlog"))
    # The ends of a tube are the sum of its retries; its shares are fractions of that.
    ended = of["retries"].groupBy(*tube).agg(F.sum("n").alias("n")).alias("b")
    shares = of["shares"].alias("a").join(ended, same).select("a.*", "n")
    n, way = F.sum("n").alias("n"), ["queue", "source", "target", "event"]
    retries = of["retries"].groupBy("queue", "attempts").agg(n)
    again = F.sum(F.when(F.col("attempts") > 1, F.col("n")).otherwise(0)).alias("again")
    missed = F.sum(F.col("n") * (1 - F.col("done"))).alias("missed")
    failed = (
        of["retries"]
        .alias("a")
        .join(of["shares"].alias("b"), same)
        .groupBy("a.queue", "a.tube")
        .agg(n, missed, again)
        .where("missed > 0 OR again > 0")
    )
    ready = of["states"].where("state = 'Ready'").select(*tube, "p50", "p90", "max", "n").alias("a")
    grown = (F.col("ready") - F.col("ready_base")).alias("grown")
    kept = levels.alias("a").join(of["oldest"].alias("b"), same, "left").select("a.*", "oldest")
    waits = ready.join(kept.select(*tube, "ready", grown, "oldest").alias("b"), same, "full").select(
        *(F.coalesce(f"a.{name}", f"b.{name}").alias(name) for name in tube),
        *("p50", "p90", "max"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("ready", "grown", "n")),
        "oldest",
    )
    waits = waits.where("ready > 0 OR n > 0")
    starved = (F.col("ready") > 0) & F.col("p90").isNull() & (F.col("oldest") > thresholds["ready_p90"])
    share, judged = F.col("missed") / F.col("n"), F.col("n") >= enough
    whys = of["failures"].select(*tube, "error", "n", F.unix_timestamp("latest").alias("latest"))
    stuck = of["stuck"].select("queue", "key", "state", F.unix_timestamp("since").alias("since"), "seconds")
    return {
        "throughput": of["throughput"].groupBy("queue", bucket).agg(*sums),
        "backlog": of["backlog"]
        .select("*", change.alias("change"))
        .groupBy("queue", bucket)
        .agg(F.sum("arrived"), F.sum("departed"), F.sum("change")),
        "levels": levels.groupBy("queue").agg(*(F.sum(name) for name in LEVELS)),
        "begun": of["begun"],
        **({"figures": of["figures"].select("queue", *FIGURES)} if "figures" in of else {}),
        "overall": of["overall"].select("queue", "measure", *RANKS),
        "shares": shares.groupBy("queue").agg(*(F.sum(F.col(kind) * F.col("n")) / F.sum("n") for kind in KINDS)),
        "retries": _first(retries, "retries", F.col("attempts")),
        "tubes": busy.groupBy("queue").agg(F.count("*")),
        "busiest": _first(busiest, "tubes", F.desc("taken"), F.desc("put"), F.col("tube")),
        "failed": _first(failed, "tubes", F.desc(judged), F.desc(share), F.desc("again"), F.col("tube")),
        "failures": _first(whys, "failures", F.desc("n"), F.desc("latest"), F.col("error")),
        "waits": _first(waits, "tubes", F.desc(starved), F.desc(judged), F.desc("p90"), F.desc("ready"), F.col("tube")),
        "slowest": _first(of["lives"].select(*tube, *RANKS), "tubes", F.desc("p90"), F.desc("max"), F.col("tube")),
        "stuck": _first(stuck, "stuck", F.desc("seconds"), F.col("key")),
        "stuck_n": of["stuck"].groupBy("queue").agg(F.count("*")),
        "transitions": _first(of["transitions"].groupBy(*way).agg(n), "transitions", F.desc("n"), *map(F.col, way[1:])),
    }


def _first(table: DataFrame, what: str, *order: Column) -> DataFrame:
    """Return the first rows of each queue, in this order."""
    place = F.row_number().over(Window.partitionBy("queue").orderBy(*order))
    return table.withColumn("place", place).where(F.col("place") <= SHOWN[what]).orderBy("queue", "place").drop("place")


def _by_queue(table: DataFrame) -> dict[str, list[Sequence[Any]]]:
    found: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for queue, *values in table.collect():
        found[queue].append(values)
    return found


def _queue(name: str, rows: Mapping[str, list[Sequence[Any]]]) -> dict[str, Any]:
    def one(what: str, otherwise: Iterable[Any]) -> Sequence[Any]:
        return rows[what][0] if rows[what] else list(otherwise)

    several = ("throughput", "backlog", "overall", "retries", "busiest", "failed", "failures", "waits", "slowest")
    return {
        "name": name,
        **{what: rows[what] for what in (*several, "transitions")},
        "levels": dict(zip(LEVELS, one("levels", [0] * len(LEVELS)), strict=True)),
        "shares": one("shares", [0] * len(KINDS)),
        "tubes": one("tubes", [0])[0],
        "stuck": {"n": one("stuck_n", [0])[0], "rows": rows["stuck"]},
    }
