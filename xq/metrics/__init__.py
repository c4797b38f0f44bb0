"""Prometheus metrics for queues and workers. It needs `pip install '.[metrics]'`."""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter as Totals
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import Pipe, get_context
from threading import Lock, Thread
from typing import Any, Final

from prometheus_client import Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from xq.api import Queue
from xq.core import time
from xq.core.errors import ConfigurationError, in_line
from xq.core.machine import READY, TAKEN
from xq.core.tokens import OUTAGE
from xq.database import duties
from xq.database.callers import begun
from xq.operators.inspection import LAST, LOOK, Locked
from xq.runtime.lease import current
from xq.workers.attempt import path_of
from xq.workers.outcomes import outcome_of
from xq.workers.program import KINDS
from xq.workers.worker import Worker

log = logging.getLogger("xq.metrics")
TUBES: Final = 100  # a queue's tubes that have their own series: Prometheus keeps each series in memory
TRANSITIONS_A_QUERY: Final = 10_000  # transitions that one query reads
LATE: Final = 5_000  # transitions with greater ids, up to which one may be committed later; fewer than one query reads
PATIENCE: Final = 8.0  # seconds within which a database answers; Prometheus waits for 10 s
SILENT: Final = TimeoutError(f"the database does not answer within {PATIENCE:g} s")
KEPT: Final = 200_000  # tasks whose last transition is kept; durations of further ones are not counted
# Seconds: from a task that a waiting worker takes at once to an hour's wait.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
Seconds: Final = partial(Histogram, registry=None, buckets=BUCKETS)
FINISHED: Final = {"release": "retry", "bury": "bury", "kill": "discard"}  # outcomes, where the function has done so
REASONS: Final = {"died": "died", OUTAGE: "server"}  # of reaped tasks, by the event
LONGEST_NAME: Final = 500  # characters
COUNTED: Final = 100_000  # unfinished tasks that a scrape counts by function: half a second on MariaDB
OF_ATTEMPTS: Final = ("queue", "tube", "task")  # labels

# For each metric: whether it only grows, what it is, and its labels after `queue`.
FAMILIES: Final[Mapping[str, tuple[bool, str, *tuple[str, ...]]]] = {
    "xq_up": (False, "1 if the last read of the queue succeeded, else 0."),
    "xq_tasks": (False, "Tasks in each state.", "tube", "state"),
    "xq_transitions": (True, "Transitions of tasks; X is no task.", "tube", "source", "target"),
    "xq_events": (True, "Calls and timers that moved tasks (feature events).", "event"),
    "xq_reaped": (True, "Tasks released because their owner's process died, or the server was restarted.", "reason"),
    "xq_oldest_ready_seconds": (False, "Age of the oldest ready task, a lower bound if xq_oldest_ready_exact is 0."),
    "xq_oldest_ready_exact": (False, "1 if the age of the oldest ready task is exact, 0 if it is a lower bound."),
    "xq_standstill_seconds": (False, "For how long, at least, tasks have been ready and none was taken; 0 if not so."),
    "xq_sessions": (False, "Open sessions that take from the queue."),
    "xq_pending": (False, "Unfinished tasks of django.tasks, by queue and function.", "tube", "task", "state"),
    "xq_locked_seconds": (False, "For how long the queue, which cannot be read, has waited for a lock on its table."),
    "xq_dependants_held": (False, "Dependants that wait for a dead parent, 1000 at most."),
    "xq_schedule_next": (False, "The schedule's next firing, in seconds since 1970.", "schedule"),
    "xq_schedule_last": (False, "The schedule's last firing, in seconds since 1970.", "schedule"),
    "xq_paused": (False, "1 if the queue (tube is empty) or the tube is paused.", "tube"),
}
Numbers = Mapping[tuple[str, ...], float]  # by metric and its labels after `queue`


class Metrics(Collector):
    """Metrics for queues: `body, content_type = Metrics([Page.xq]).scrape()`.

    `queues` are queues, or queues by the names to show in the label `queue`. Keep one object for each process: it
    counts durations from its first scrape on; with `past`, also for the last transitions before it. Within
    `fresh_for` seconds the same answer is returned. `start_http_server(9464, "127.0.0.1", metrics)` of
    prometheus_client serves it.
    """

    def __init__(
        self, queues: Iterable[Queue[Any]] | Mapping[str, Queue[Any]], *, fresh_for: float = 1.0, past: bool = False
    ) -> None:
        takes = Seconds("xq_take_seconds", "Time in Ready before a take (history).", ["queue"])
        acks = Seconds("xq_ack_seconds", "Time in Taken before an ack (history).", ["queue"])
        self.collectors: list[Collector] = [takes, acks]  # those of prometheus_client that it shows as well
        self._readers: dict[str, QueueReader] = {}
        for name, queue in queues.items() if isinstance(queues, Mapping) else ((each.name, each) for each in queues):
            # Two models may have one name, and a series must not stand twice.
            label = f"{name} ({len(self._readers) + 1})" if name in self._readers else name
            self._readers[label] = QueueReader(queue, label, takes, acks, past)
        self._fresh_for = fresh_for
        self._read_at = -fresh_for
        self._reading = Lock()
        self._away: set[str] = set()  # the queues that could not be read at the last scrape, as logged
        self._reads: dict[int, Future[Any]] = {}  # the last read of each database's queues, while it lasts

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics and their content type, for a request's header Accept. A failed read is `xq_up` 0."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

    def failed(self) -> list[str]:
        """Return which queues, by name, could not be read at the last scrape."""
        return [name for name, reader in self._readers.items() if not reader.numbers["xq_up",]]

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        families = {
            metric: (CounterMetricFamily if grows else GaugeMetricFamily)(metric, what, labels=["queue", *labels])
            for metric, (grows, what, *labels) in FAMILIES.items()
        }
        with self._reading:
            if time.monotonic() - self._read_at >= self._fresh_for:
                self._read()
                self._read_at = time.monotonic()
        for name, reader in self._readers.items():
            for (metric, *labels), number in reader.numbers.items():
                families[metric].add_metric([name, *labels], number)
        yield from families.values()
        for collector in self.collectors:
            yield from collector.collect()

    def _read(self) -> None:
        """Read the queues of each database, in a thread for up to PATIENCE seconds. Log once which are away.

        A thread that has an open connection reads by it.
        """
        databases: dict[int, list[QueueReader]] = {}
        for reader in self._readers.values():
            databases.setdefault(id(reader.store.database), []).append(reader)
        for key, readers in databases.items():
            if key not in self._reads or self._reads[key].done():
                for reader in readers:
                    reader.error = SILENT  # until it is read
                if not readers[0].store.has_threads or readers[0].store.in_use is not None:
                    _read(readers)
                else:
                    self._reads[key] = begun(partial(_read, readers))
        wait(self._reads.values(), PATIENCE)
        for readers in databases.values():
            failing = {reader.name: reader.error for reader in readers if reader.error is not None}
            if new := [name for name in failing if name not in self._away]:
                log.warning("the metrics of %s cannot be read: %s", ", ".join(new), in_line(failing[new[0]]))
            self._away = self._away - {reader.name for reader in readers} | failing.keys()
            for name in failing:
                self._readers[name].leave_out()


def _read(readers: Iterable[QueueReader]) -> None:
    until = time.monotonic() + LOOK  # of all together, so that many locks hold up the last reader no longer than one
    for reader in readers:
        reader.read(until)


class QueueReader:
    """Reads one queue for one process.

    The history has no index by task, so the reader keeps when each task last moved. For these times it reads the last
    transitions before its start; it counts them only with `past`.
    """

    def __init__(self, queue: Queue[Any], name: str, takes: Histogram, acks: Histogram, past: bool) -> None:
        self.numbers: Numbers = {("xq_up",): 0}
        self.name, self.store = name, queue.parts.store
        self.error: Exception | None = None  # of the last read
        self._queue = queue
        if queue.machine.settings.history is not None:
            self._takes, self._acks = takes.labels(name), acks.labels(name)
        self._past = past
        self._reaped = Totals[str]()  # by their reasons; "" is no reaped task
        self._read: set[int] = set()  # the last ids that were read, among which others may be committed later
        self._entered: dict[str, float] = {}  # when each ready or taken task became so, in seconds since 1970

    def read(self, until: float) -> None:
        """Set `numbers`, or the error of the database."""
        try:
            with self.store.briefly_connected():
                self.numbers = self._now(until)
            self.error = None
        except Exception as error:
            self.error = error

    def leave_out(self) -> None:
        """Leave out the numbers that the database does not say now: only the growing ones stay."""
        self.numbers = {("xq_up",): 0} | {key: n for key, n in self.numbers.items() if FAMILIES[key[0]][0]}
        if isinstance(self.error, Locked):
            self.numbers |= {("xq_locked_seconds",): self.error.seconds}

    def _now(self, until: float) -> Numbers:
        inspection = self._queue.parts.doctor
        inspection.check_lock(until)
        stats, pauses, _, oldest, standstill = inspection.snapshot()
        paused = [pause.tube for pause in pauses if pause.group is None]
        found: dict[tuple[str, ...], float] = {
            ("xq_up",): 1,
            ("xq_sessions",): inspection.takers(),
            ("xq_standstill_seconds",): standstill,
            ("xq_locked_seconds",): 0,
            ("xq_paused", ""): None in paused,
            **{("xq_paused", tube): 1 for tube in paused[:TUBES] if tube is not None},
            **self._by_tube({"": stats, **stats.tube}),
        }
        for name, _, _, next_us, last_us, paused, *_ in inspection.schedules()[:TUBES]:
            times = {} if paused else {"xq_schedule_next": next_us, "xq_schedule_last": last_us}
            found |= {(metric, name): at / 1e6 for metric, at in times.items() if at is not None}
        if any(slice.failed for slice in inspection.executor.dialect.slices):
            found["xq_dependants_held",] = len(inspection.held(stats))
        if oldest is not None:
            found["xq_oldest_ready_seconds",], found["xq_oldest_ready_exact",] = oldest
        few = sum(stats.counts.get(state, 0) for state in "WRT") <= COUNTED
        for tube, task, word, n in getattr(self._queue.model, "xq_pending", tuple)() if few else ():
            key = "xq_pending", tube, task[:LONGEST_NAME], self._queue.parts.definition.state_of(word) or ""
            found[key] = found.get(key, 0) + n
        if self._queue.machine.settings.history is not None:
            self._follow()
            found |= {("xq_reaped", reason): self._reaped[reason] for reason in REASONS.values()}
        if self._queue.machine.settings.counts_events:
            found |= {("xq_events", event): n for event, n in stats.events.items()}
            found |= {("xq_reaped", reason): stats.events.get(event, 0) for event, reason in REASONS.items()}
        return found

    def _by_tube(self, counted: Mapping[str, Any]) -> Totals[tuple[str, ...]]:
        """Return each tube's numbers, and as "" the rest of the queue, so that their sum is the queue."""
        # Transitions count from 0 on, since Prometheus detects no increase in the first value of a series.
        none = {f"{row.source}-{row.target}": 0 for row in self._queue.machine.rows if row.source != row.target}
        found = Totals[tuple[str, ...]]()
        for place, (tube, numbers) in enumerate(counted.items()):
            for name, n in (none | numbers.counts | numbers.transition).items():
                metric, labels = "xq_transitions" if "-" in name else "xq_tasks", name.split("-")
                found[metric, tube if place <= TUBES else "other", *labels] += n
                if place and (metric, "", *labels) in found:
                    found[metric, "", *labels] -= n
        return found

    def _follow(self) -> None:
        """Count the transitions that were committed since the last call."""
        inspection = self._queue.parts.doctor
        newest = inspection.newest()
        if max(self._read, default=newest + 1) > newest:  # the first call, or the queue was installed anew
            self._read, self._entered = {max(0, newest - LAST)}, {}
            self._counts_after = 0 if self._past else newest
        rows = None
        while rows is None or len(rows) == TRANSITIONS_A_QUERY:
            first, last = min(self._read), max(self._read)
            after = last if last - first < len(self._read) else max(first, last - LATE)  # an id between them is missing
            rows = inspection.after(after, TRANSITIONS_A_QUERY)
            for row in rows:
                if row.id not in self._read:
                    self._count(row)
            self._read = {id for id in self._read if id >= after} | {row.id for row in rows}

    def _count(self, row: Any) -> None:
        key, at = row.key, row.at_us / 1_000_000
        spent = max(0.0, at - self._entered.pop(key)) if key in self._entered else None  # a clock may be set back
        if row.target in (READY, TAKEN) and len(self._entered) < KEPT:
            self._entered[key] = at
        if row.id > self._counts_after:
            self._reaped[REASONS.get(row.event, "")] += 1
            if spent is not None and (row.source, row.target) == (READY, TAKEN):
                self._takes.observe(spent)
            elif spent is not None and (row.source, row.event) == (TAKEN, "ack"):
                self._acks.observe(spent)


@contextmanager
def serving(
    workers: list[Worker[Any]], host: str, port: int, names: Sequence[str] | None = None, tubes: Sequence[str] = ()
) -> Iterator[None]:
    """Serve metrics for workers, their queues and this program, while the block runs the workers.

    The queues have these names, in the workers' order; None: their own. `tubes` are shown beside the ones that
    `tube_stats` and the workers name. Port 0 chooses a free one. The parent of worker processes has no threads, since
    it forks again when one crashes: then a separate process serves.
    """
    named = [worker.queue.name for worker in workers] if names is None else names
    queues: dict[str, Any] = {name: worker.queue for name, worker in zip(named, workers, strict=True)}
    metrics = Metrics(queues)
    work = WorkerCounts(workers, named, tubes)
    metrics.collectors += work.metrics.values()
    try:
        with socket.create_server((host, port)) as free:
            port = free.getsockname()[1]
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"the metrics cannot be served on {host}:{port}: {error}") from error
    log.info("metrics: http://%s:%d/metrics", host, port)
    with ExitStack() as ending:
        ending.callback(work.writer.close)
        if any(KINDS[worker.options.kind].forks for worker in workers):
            get_context("fork").Process(target=_serve, args=(host, port, metrics, work), daemon=True).start()
        else:
            server, _ = start_http_server(port, host, metrics)
            ending.callback(server.server_close)
            ending.callback(server.shutdown)
            Thread(target=work.read, name="xq-metrics", daemon=True).start()
        yield


def _serve(host: str, port: int, metrics: Metrics, work: WorkerCounts) -> None:
    start_http_server(port, host, metrics)
    work.writer.close()  # so that `read` ends with the other processes
    work.read()


class WorkerCounts:
    """Counts what a program's workers do. Its processes write records into a pipe, which one of them reads.

    A record is shorter than PIPE_BUF, so a process that is killed spoils none. If the pipe is full, the record is lost.
    Only names from the code become labels: `tubes`, the tubes that the queue or a worker names, and what a task runs.
    """

    def __init__(self, workers: Sequence[Worker[Any]], names: Sequence[str], tubes: Sequence[str] = ()) -> None:
        self.metrics: dict[str, Counter | Histogram] = {
            "attempt": Counter(
                "xq_attempts", "Calls of a worker's function.", [*OF_ATTEMPTS, "outcome"], registry=None
            ),
            "spent": Seconds("xq_attempt_seconds", "Time in a worker's function.", OF_ATTEMPTS),
            "sweep": Counter("xq_sweeps", "Runs of the duty that expires timers.", registry=None),
            "wakeup": Counter("xq_wakeups", "Notifications that woke a maintenance thread.", registry=None),
        }
        self._reader, self.writer = Pipe(duplex=False)
        os.set_blocking(self.writer.fileno(), False)
        for name, worker in zip(names, workers, strict=True):
            for outcome in ("returned", "failed", "retry", "next", "bury", "discard", "cancelled"):
                self.metrics["attempt"].labels(name, worker.options.tube or "", "", outcome)  # from 0 on
            known = (*tubes, *worker.queue.handlers, *worker.queue.parts.waiting.executor.definition.tube_stats)
            named = frozenset(sorted({tube for tube in known if tube is not None})[:TUBES])
            self._begin(name, named, worker)
            worker.in_child.append(partial(self._begin, name, named))

    def __getstate__(self) -> dict[str, Any]:
        return {"writer": self.writer}  # what a process needs that has imported the worker

    def _begin(self, name: str, tubes: frozenset[str], worker: Worker[Any]) -> None:
        duties.count = lambda duty: self._write(duty, 1)
        labels = partial(self._labels, worker, tubes)
        worker.around(partial(self._around, name, labels))
        worker.counted = lambda task, outcome: self._write("attempt", 1, name, *labels(task), outcome)

    @staticmethod
    def _labels(worker: Worker[Any], tubes: frozenset[str], task: Any) -> tuple[str, str]:
        """Return a task's labels, tube and task."""
        tube = worker.queue.parts.named.tasks.in_role(task, "tube")
        return tube if tube in tubes else "", path_of(task)[:LONGEST_NAME]

    def _around(self, queue: str, labels_of: Callable[[Any], tuple[str, str]], task: Any) -> Iterator[None]:
        began, outcome, taken = time.monotonic(), "returned", current().taken
        of = [labels_of(each.task) for each in taken]  # now: the function may change it
        try:
            yield
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            outcome = "cancelled" if current().cancelled else outcome
            self._write("spent", time.monotonic() - began, queue, *of[0])
            failed = getattr(task, "failed", ()) if isinstance(task, list) else ()  # by their places
            ended = [FINISHED.get(each.finished, outcome) for each in taken]
            ended = ["failed" if place in failed else each for place, each in enumerate(ended)]
            for (labels, end), n in Totals(zip(of, ended, strict=True)).items():
                self._write("attempt", n, queue, *labels, end)

    def _write(self, metric: str, n: float, *labels: str) -> None:
        with suppress(OSError):  # the pipe is full, or nothing reads any more
            self.writer.send((metric, n, *labels))

    def read(self) -> None:
        """Count the records, until no process writes any more."""
        with self._reader, suppress(EOFError, KeyboardInterrupt):
            while True:
                what, n, *labels = self._reader.recv()
                metric = self.metrics[what].labels(*labels) if labels else self.metrics[what]
                metric.inc(n) if isinstance(metric, Counter) else metric.observe(n)
