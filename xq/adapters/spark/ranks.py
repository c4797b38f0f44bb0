"""Compute exact percentiles of any number of values in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PERCENTILES = (50, 90, 99)
BINS = 200  # for each factor of e: a bin is half a percent wide
BIN = f"floor(log1p(us) * {BINS})"  # the bin of an integer from 0 on: bins grow with the values


def ranks(values: DataFrame, bins: DataFrame, by: Sequence[str], part: str) -> DataFrame:
    """Return the percentiles of integers per group and per part of it: `by`, whole, `part`, n, p50, p90, p99, most.

    `values` has the columns `by`, `part` and us; `bins` counts them: `by`, `part`, bin, here, most. The row of a whole
    group has `whole`, and no part.

    A percentile is the nearest rank: the least value with at least so many percent at or below it, which is one of the
    values. Only the values of the bins that contain a percentile are sorted. So no group is ever sorted or held in
    memory completely. The bins are few, and one task reads them.
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
    # rank: of the percentile within its bin, from 1; an integer, so exact
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
