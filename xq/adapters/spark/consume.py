"""Consume tasks as DataFrames, in the driver program's session."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

import xq
from xq.adapters.spark.errors import LOST_EXECUTOR, may_be_of_a_row, words_of
from xq.adapters.spark.exchange import Exchange, Result
from xq.adapters.spark.leases import Leases, leases_of
from xq.adapters.spark.queues import check_session
from xq.api import queue_of
from xq.core import time
from xq.core.errors import BadType, BadValue, FeatureOff, is_integer, shown
from xq.core.machine import TAKEN

log = logging.getLogger("xq")

# Tasks of a batch that fail when work is run on each alone: so many are taken for a failure of the work itself, the
# first number where no other task of the batch has succeeded.
ALONE, MOST = 10, 100


def consume(
    spark: SparkSession,
    queue: object,
    work: Callable[[DataFrame], DataFrame],
    batch: int = 10_000,
    on_error: Literal["bury", "release"] = "bury",
    timeout: float | None = 0,
) -> Counter[str]:
    """Process a queue's ready tasks, up to `batch` at once, until none arrives within `timeout` seconds.

    `work` gets the tasks as a DataFrame with the columns of `format("xq")`, except those that xq has added to the
    table. It returns one with the key, the fields to set, and optionally `xq_error`. One transaction writes the changed
    fields and acks the tasks. A task with an xq_error is buried: its fields are written, except NULLs, and the error to
    the role error if that is mapped. With on_error="release" it is released unchanged, as is a task whose row is
    missing.

    If `work` raises, it runs again on halves of the batch, and so on, down to the tasks that fail alone: these are
    treated as if their exception were their xq_error, and all others as ever, each part in its own transaction. This
    takes about 2 * log2(batch) runs for a task that fails, so side effects of `work` may happen more than once. The
    failure is one of `work` itself, and is raised, if 10 tasks fail alone before a part of their batch succeeds, or
    100 of a batch, or all of them. Raised at once are errors of no row: xq's, AnalysisException, ImportError, those of
    lost executors, a cancelled job or an ended session.

    The call's own session takes the tasks. When the process ends, even by kill -9, they are ready again within a
    second. Released tasks go back when the call ends, so that it does not take them again. If ttr times the tasks,
    a heartbeat thread touches them. If another process has taken a task away meanwhile, nothing is written for it.

    Returns how many tasks there were by outcome: ack, bury, release, lost. Before it raises it releases all unfinished
    tasks, and the next call takes them first. With the feature max_takes, this is a lost take of the tasks that failed
    alone, and of the batch that lost executors. Raises BadValue for a frame without the key, with a column that is no
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
        updates = [results[key].update for key in done]
        handle.ack_many([own[key] for key in done], update=updates if any(updates) else None)
        if failed:
            why = [results[key].error for key in failed] if "error" in handle.roles else None
            handle.bury_many([own[key] for key in failed], update=[results[key].update for key in failed], error=why)
        return [*done, *failed]

    with leases_of(handle) as leases:
        while tasks := leases.take(batch, timeout):
            began, before, keys, sent = time.monotonic(), outcomes.copy(), [*tasks], exchange.sent(tasks.values())

            def run(part: range, sent: Any = sent, keys: list[Any] = keys) -> dict[Any, Result]:
                some = sent.slice(part.start, len(part))
                return exchange.results(work(exchange.made(spark, some)), some, keys[part.start : part.stop])

            for some, results in _results(spark, run, keys, leases):
                ended, lost = leases.finish(partial(finish, results), some)
                failed = sum(results[key].error is not None for key in ended)
                outcomes.update(ack=len(ended) - failed, bury=failed, lost=len(lost))
            seconds, ends = time.monotonic() - began, dict(outcomes - before)
            if unfinished := len(keys) - sum(ends.values()):
                ends["release"] = unfinished  # when the call ends
            log.info("consume %s: %d tasks in %.1f s: %s", handle.name, len(keys), seconds, ends)
        released, lost = leases.release()
        outcomes.update(release=len(released), lost=len(lost))
    return +outcomes


def _results(
    spark: SparkSession, run: Callable[[range], dict[Any, Result]], keys: list[Any], leases: Leases
) -> Iterator[tuple[list[Any], dict[Any, Result]]]:
    """Yield keys, and the results of these tasks: of all at once, or of halves of halves where `run` fails.

    The tasks that fail alone come last. Raises the first error if these are too many, and errors of no row at once.
    """
    parts, broken, failed = [range(len(keys))], list[range](), dict[Any, Result]()
    first, succeeded = None, False
    while (parts or broken) and len(failed) < (MOST if succeeded else ALONE):
        if not parts:  # both halves before halves of these: a sound one shows that the work is
            part = broken.pop()
            parts = [part[len(part) // 2 :], part[: len(part) // 2]]
        part = parts.pop()
        some = keys[part.start : part.stop]
        try:
            results = run(part)
        except Exception as error:
            if not may_be_of_a_row(error, spark):
                leases.fail(keys if LOST_EXECUTOR in str(error) else ())
                raise
            first, words = first or error, words_of(error)
            if len(part) > 1:
                broken.append(part)
                log.info("consume: work failed for %d tasks, and runs on their halves: %s", len(part), words)
            else:
                failed[some[0]] = Result({}, words)
                log.warning("consume: work failed for the task %s: %s", shown(some[0]), words)
        else:
            succeeded = True
            yield some, results
    if first and (parts or broken or not succeeded):
        leases.fail(failed)
        first.add_note(
            f"xq.spark.consume ran the work on {len(failed)} tasks alone, and it failed for each: all unfinished tasks "
            "are released. xq.spark.catching makes the exception of a row a value"
        )
        raise first
    if failed:
        yield [*failed], failed


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
