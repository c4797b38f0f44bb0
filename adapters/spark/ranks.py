"""Compute exact percentiles of any number of values in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

PERCENTILES = (50, 90, 99)
BINS = 200  # for each factor of e: a bin is half a percent wide


def ranks(values: DataFrame, by: Sequence[str], value: str) -> DataFrame:
    """Return the percentiles of a column of integer µs per group: the columns `by`, n, p50, p90, p99, max in seconds.

    A percentile is the nearest rank: the least value with at least so many percent at or below it, which is one of the
    values. Nulls are ignored. The values are first counted in bins that grow with them; then only the bins that contain
    a percentile are sorted. So no group is ever sorted or held in memory completely.
    """
    group = F.struct(*by).alias("group")  # the parts of a struct may be null, and then compare as equal
    binned = values.where(F.col(value).isNotNull()).select(
        group, F.col(value).alias("us"), F.floor(F.log1p(F.col(value)) * BINS).alias("bin")
    )
    of_group = Window.partitionBy("group")
    bins = (
        binned.groupBy("group", "bin")
        .agg(F.count("*").alias("here"), F.max("us").alias("most"))
        .withColumns(
            {
                "n": F.sum("here").over(of_group),
                "max": F.max("most").over(of_group),
                "upto": F.sum("here").over(of_group.orderBy("bin")),
            }
        )
    )
    # rank: of the percentile within its bin, from 1; an integer, so exact
    wanted = (
        bins.withColumn("percent", F.explode(F.array(*map(F.lit, PERCENTILES))))
        .withColumn("rank", F.ceil(F.col("percent") * F.col("n") / 100) - F.col("upto") + F.col("here"))
        .where("rank BETWEEN 1 AND here")
    )
    ordered = Window.partitionBy("group", "percent").orderBy("us")
    found = (
        binned.join(wanted, ["group", "bin"])
        .groupBy("group", "n", "max", "percent", "rank", "us")
        .agg(F.count("*").alias("same"))
        .withColumn("upto", F.sum("same").over(ordered))
        .where("upto >= rank")
    )
    least = {f"p{percent}": F.min(F.when(F.col("percent") == percent, F.col("us"))) for percent in PERCENTILES}
    summary = found.groupBy("group", "n", "max").agg(*(column.alias(name) for name, column in least.items()))
    return summary.select("group.*", "n", *((F.col(name) / 1e6).alias(name) for name in [*least, "max"]))
