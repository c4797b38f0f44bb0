"""Consume tasks as DataFrames, in the driver program's session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

import xq
from xq.adapters.spark.exchange import Exchange, Result
from xq.adapters.spark.leases import leases_of
from xq.adapters.spark.queues import check_session
from xq.api import queue_of
from xq.core.errors import BadType, BadValue, FeatureOff, is_integer, shown
from xq.core.machine import TAKEN


def consume(
    spark: SparkSession,
    queue: object,
    work: Callable[[DataFrame], DataFrame],
    batch: int = 10_000,
    on_error: Literal["bury", "release"] = "bury",
    timeout: float | None = 0,
) -> Counter[str]:
    """Process a queue's ready tasks, up to `batch` at once, until none arrives within `timeout` seconds.

    `work` gets the tasks as a DataFrame with the columns of `format("xq")`. It returns one with the key, the fields to
    set, and optionally `xq_error`. One transaction writes the changed fields and acks the tasks. A task with an
    xq_error is buried, and the error is written to the role error if that is mapped; with on_error="release" it is
    released unchanged. A task whose row is missing is treated the same way.

    The call's own session takes the tasks. When the process ends, even by kill -9, they are ready again within a
    second. Released tasks go back when the call ends, so that it does not take them again. If ttr times the tasks,
    a heartbeat thread touches them. If another process has taken a task away meanwhile, nothing is written for it.

    Returns how many tasks there were by outcome: ack, bury, release, lost. If `work` raises, all unfinished tasks are
    released and the error is raised. Raises BadValue for a frame without the key, with a column that is no
    field, with a change to the queue's own fields, or with an unknown or repeated task; FeatureOff for "bury" without
    the feature buried; and ConfigurationError for an in-memory database.
    """
    handle = queue_of(queue)
    _check(handle, work, batch, on_error)
    check_session(spark, handle)
    exchange = Exchange(handle)
    outcomes: Counter[str] = Counter()

    def finish(results: Mapping[Any, Result], own: Mapping[Any, Any]) -> Collection[Any]:
        """Finish the tasks that have a result. Returns their keys."""
        returned = [key for key in own if key in results]
        done = [key for key in returned if results[key].error is None]
        failed = [key for key in returned if results[key].error is not None and on_error == "bury"]
        handle.ack_many([own[key] for key in done], update=[results[key].update for key in done])
        if failed:
            why = [results[key].error for key in failed] if "error" in handle.roles else None
            handle.bury_many([own[key] for key in failed], update=[results[key].update for key in failed], error=why)
        return [*done, *failed]

    with leases_of(handle) as leases:
        while tasks := leases.take(batch, timeout):
            sent = {key: exchange.sent(data) for key, data in tasks.items()}
            results = exchange.results(work(exchange.made(spark, list(sent.values()))), sent)
            ended, lost = leases.finish(partial(finish, results), tasks)
            failed = sum(results[key].error is not None for key in ended)
            outcomes.update(ack=len(ended) - failed, bury=failed, lost=len(lost))
        released, lost = leases.release()
        outcomes.update(release=len(released), lost=len(lost))
    return +outcomes


def _check(queue: xq.Queue[Any], work: object, batch: object, on_error: object) -> None:
    if not callable(work):
        raise BadType(f"work is a function, not {shown(work)}")
    if not is_integer(batch):
        raise BadType(f"batch is a number of tasks, not {shown(batch)}")
    if batch < 1:
        raise BadValue(f"batch is a number of tasks from 1 on, not {batch}")
    if on_error not in ("bury", "release"):
        raise BadValue(f"on_error is 'bury' or 'release', not {shown(on_error)}")
    if on_error == "bury" and TAKEN not in queue.machine.sources("bury"):
        raise FeatureOff(
            f"consume buries failed tasks, but {queue.name} lacks the feature 'buried': turn it on, or use "
            "on_error='release'",
            feature="buried",
        )
    if queue.parts.store.in_transaction():
        raise BadValue("consume opens transactions of its own: call it outside of a transaction")
