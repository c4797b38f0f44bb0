"""Tasks worked off as DataFrames, under a session of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, Row, SparkSession

import xq
from xq.adapters.spark.exchange import Exchange, Result
from xq.adapters.spark.queues import check_session, queue_of
from xq.core.errors import BadType, BadValue, FeatureOff, shown
from xq.core.machine import TAKEN
from xq.runtime.lease import Lease


def consume(
    spark: SparkSession,
    queue: object,
    work: Callable[[DataFrame], DataFrame],
    batch: int = 10_000,
    on_error: Literal["bury", "release"] = "bury",
    timeout: float | None = 0,
    *,
    also: Callable[[list[Row]], object] | None = None,
) -> Counter[str]:
    """Work the ready tasks of a queue off, up to `batch` at once, until none comes within `timeout` seconds.

    `work` gets them as a DataFrame, with the columns of `format("xq")`, and returns one with the key, with the fields
    that it sets, and with `xq_error` if it likes. What is not as it was is written, and the tasks are acked, in one
    transaction of the database. What has an xq_error is buried instead, with that in the role error where it is
    mapped; or, as `on_error` says, released as it was taken. So is a task of which no row comes back. `also` is called
    within the transaction with the rows that came back, for writes of your own into the same database; and again when
    the database undid it (a deadlock).

    All is taken by a session of this call: when the process ends, be it by kill -9, the tasks are ready again within a
    second. What is released goes back when the call ends, so that it does not take that again. Where ttr times the
    tasks, a thread touches them as long as they are in hand. Those that another has taken away meanwhile are left to
    him, and nothing of them is written.

    Returns how many tasks there were by what became of them: ack, bury, release, lost. When `work` or `also` raises,
    all that is in hand goes back and the error passes; so for a frame without the key, with a column that is no field
    or one of the queue's own that was changed, or with a row that is of no task, or of one for a second time: BadValue.
    Raises FeatureOff for "bury" without the feature buried, and ConfigurationError for a database in memory.
    """
    handle = queue_of(queue)
    _check(handle, work, batch, on_error, also)
    check_session(spark)
    exchange = Exchange(handle)
    told: Counter[str] = Counter()

    def finish(results: Mapping[Any, Result], ours: Mapping[Any, Any]) -> Collection[Any]:
        """Move those of our tasks that have come to their end. Returns which."""
        returned = [key for key in ours if key in results]
        done = [key for key in returned if results[key].error is None]
        failed = [key for key in returned if results[key].error is not None and on_error == "bury"]
        handle.ack_many([ours[key] for key in done], update=[results[key].update for key in done])
        if failed:
            why = [results[key].error for key in failed] if "error" in handle.roles else None
            handle.bury_many([ours[key] for key in failed], update=[results[key].update for key in failed], error=why)
        if also is not None:
            also([results[key].row for key in returned])
        return [*done, *failed]

    with Lease(handle) as lease:
        while tasks := lease.take(batch, timeout):
            sent = {key: exchange.sent(data) for key, data in tasks.items()}
            results = exchange.results(work(exchange.made(spark, list(sent.values()))), sent)
            ended, lost = lease.finish(partial(finish, results), tasks)
            failed = sum(results[key].error is not None for key in ended)
            told.update(ack=len(ended) - failed, bury=failed, lost=len(lost))
        released, lost = lease.release()
        told.update(release=len(released), lost=len(lost))
    return +told


def _check(queue: xq.Queue[Any], work: object, batch: object, on_error: object, also: object) -> None:
    """Raise what is wrong with a call, before anything is taken."""
    for name, function in {"work": work, **({} if also is None else {"also": also})}.items():
        if not callable(function):
            raise BadType(f"{name} is a function, not {shown(function)}")
    if isinstance(batch, bool) or not isinstance(batch, int):
        raise BadType(f"batch is a number of tasks, not {shown(batch)}")
    if batch < 1:
        raise BadValue(f"batch is a number of tasks from 1 on, not {batch}")
    if on_error not in ("bury", "release"):
        raise BadValue(f"on_error is 'bury' or 'release', not {shown(on_error)}")
    if on_error == "bury" and TAKEN not in queue.machine.sources("bury"):
        raise FeatureOff(
            f"consume buries what failed, which needs the feature 'buried', and {queue.name} does not have it: "
            "say on_error='release', or turn it on",
            feature="buried",
        )
    if queue.adapter.store.in_transaction():
        raise BadValue("consume makes transactions of its own: call it outside of one")
