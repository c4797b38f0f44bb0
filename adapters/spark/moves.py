"""The history of queues for the report: each transition with what its task did before.

The rows of a key are ordered by their ids. The row lock is held while a transition is recorded, so the ids have the
order of events, whatever the clock did. A duration that would be negative, since the clock was set back, is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from xq.core.machine import ABSENT

READY = ("R",)
BACKLOG = ("R", "W")
OPEN = ("R", "T", "W", "B")  # not finished
FINISHED = ("D", "Z")
EXPIRIES = ("ttl", "lifetime")
OUTCOMES = ("done", "buried", "killed", "expired")
COUNTED = ("put", "taken", *OUTCOMES)  # the counters of a throughput
UNITS: Mapping[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}  # of the buckets, in seconds

HISTORY = ("queue", "id", "at_us", "key", "tube", "source", "target", "event", "attempt")


def is_(name: str, letters: Sequence[str]) -> Column:
    return F.col(name).isin(*letters)


def took() -> Column:
    return (F.col("target") == "T") & (F.col("source") != "T")


def outcome() -> Column:
    """Return how an unfinished task ended with this row: one of OUTCOMES, or null.

    A deleted task is done if it was acked, expired if its ttl or lifetime passed, and killed otherwise. A finished task
    does not end again, for example an expired zombie or an archived task.
    """
    gone = F.col("target") == ABSENT
    ends: Sequence[tuple[Column, str]] = (
        (~is_("source", OPEN), ""),
        (is_("target", FINISHED) | (gone & (F.col("event") == "ack")), "done"),
        ((F.col("target") == "B") & (F.col("source") != "B"), "buried"),
        (gone & is_("event", EXPIRIES), "expired"),
        (gone, "killed"),
    )
    when = reduce(lambda case, end: case.when(*end), ends[1:], F.when(*ends[0]))
    return F.nullif(when, F.lit(""))


def moves(history: DataFrame) -> DataFrame:
    """Return each row of a history with the columns HISTORY (at_us: µs since 1970), and with these columns:

    was, was_tube       the state and the tube of the task before, from the previous row of its key;
                        in a key's first row, from the row itself
    first, last         whether it is the first or the last row of its key
    stay                µs in the state that it leaves; null if the history does not show when that began
    arrives, departs    whether the task enters the backlog (R or W) of this tube, and leaves that of was_tube
    readied, unreadied  the same for R alone
    life                the number of this life of the key, from 1 on: put, and restart of a finished task, begin one;
                        0 if the history does not show its beginning
    lived               µs since this life began, or null
    takes               how often it was taken in this life; in life 0 the role attempts, if that is higher
    outcome             how the task ended with this row, or null
    """
    of_key = Window.partitionBy("queue", "key").orderBy("id")
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def since(moment: Column) -> Column:
        return F.when(moment.isNotNull(), F.greatest(F.col("at_us") - moment, F.lit(0)))  # greatest ignores nulls

    rows = history.select(*HISTORY).withColumns(
        {
            "first": F.lag("id").over(of_key).isNull(),
            "last": F.lead("id").over(of_key).isNull(),
            "before": F.lag("target").over(of_key),
            "before_us": F.lag("at_us").over(of_key),
            "before_tube": F.lag("tube").over(of_key),
            "takes": F.count_if(took()).over(so_far),
            "begins": is_("target", OPEN) & ~is_("source", OPEN),
        }
    )
    in_it = (F.col("before") == F.col("source")) & (F.col("source") != ABSENT)
    known = rows.withColumns(
        {
            "was": F.coalesce("before", "source"),
            "was_tube": F.when(F.col("first"), F.col("tube")).otherwise(F.col("before_tube")),
            "stay": F.when(in_it, since(F.col("before_us"))),
        }
    )
    same_tube = F.col("was_tube").eqNullSafe(F.col("tube"))

    def comes(now: str, then: str, states: Sequence[str]) -> Column:
        return is_(now, states) & ~(is_(then, states) & same_tube)

    flagged = known.withColumns(
        {
            "arrives": comes("target", "was", BACKLOG),
            "departs": comes("was", "target", BACKLOG),
            "readied": comes("target", "was", READY),
            "unreadied": comes("was", "target", READY),
            "outcome": outcome(),
        }
    )
    lives = flagged.withColumns(
        {
            "life": F.count_if(F.col("begins")).over(so_far),
            "lived": since(F.last(F.when(F.col("begins"), F.col("at_us")), ignorenulls=True).over(so_far)),
            "earlier": F.max(F.when(F.col("begins"), F.col("takes") - took().cast("long"))).over(so_far),
        }
    )
    takes = F.coalesce(F.col("takes") - F.col("earlier"), F.greatest("takes", F.coalesce("attempt", F.lit(0))))
    return lives.withColumn("takes", takes).drop("before", "before_us", "before_tube", "begins", "earlier", "attempt")
