"""The metrics of queues as Prometheus reads them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from xq.metrics.reading import QueueReader, Reading
from xq.metrics.work import OUTCOMES, Work

if TYPE_CHECKING:
    from xq.handle import Queue

    Queues = Iterable[Queue[Any]] | Mapping[str, Queue[Any]]

log = logging.getLogger("xq.metrics")

PATIENCE = 5.0  # seconds that a scrape waits for another one, which a database holds up


class Metrics:
    """The metrics of queues: `body, content_type = Metrics([Page.xq]).scrape()`.

    `queues` are queues, queues by the names to show, or a function that returns either. The label `queue` is the name
    of the queue. Keep one object for each process: it counts durations from its start on. Within `fresh_for` seconds
    the same answer is returned again. With `past`, the durations of the last transitions before the start are counted.
    """

    def __init__(
        self,
        queues: Queues | Callable[[], Queues],
        *,
        fresh_for: float = 1.0,
        past: bool = False,
        work: Work | None = None,
    ) -> None:
        self._queues = queues
        self._fresh_for = fresh_for
        self._past = past
        self._work = work
        self._readers: dict[str, QueueReader] = {}
        self._readings: list[tuple[str, Reading]] = []
        self._read_at = -fresh_for
        self._reading = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(self))

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics, and their content type, in a format that the header Accept of a request allows.

        A database that fails is `xq_up` 0; nothing is raised.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def readings(self) -> list[tuple[str, Reading]]:
        """Return (queue, its numbers), read anew if the last ones are older than `fresh_for` seconds."""
        if not self._reading.acquire(timeout=PATIENCE):
            return [(name, reader.known()) for name, reader in list(self._readers.items())]
        try:
            if time.monotonic() - self._read_at >= self._fresh_for:
                self._readings = [(name, _read(name, reader)) for name, reader in self._current().items()]
                self._read_at = time.monotonic()
            return self._readings
        finally:
            self._reading.release()

    def _current(self) -> dict[str, QueueReader]:
        try:
            given = self._queues() if callable(self._queues) else self._queues
        except Exception as error:
            log.warning("it cannot be read which queues there are: %s", error)
            return self._readers
        named = given.items() if isinstance(given, Mapping) else ((queue.name, queue) for queue in given)
        before, found = self._readers, dict[str, QueueReader]()
        for name, queue in named:
            label, n = name, 2
            while label in found:  # two models of one name: a series must not stand twice
                label, n = f"{name} ({n})", n + 1
            reader = before.get(label)
            found[label] = reader if reader and reader.queue is queue else QueueReader(queue, self._past)
        self._readers = found
        return found

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from _of_queues(self.readings())
        if self._work is not None:
            yield from _of_work(self._work)


def _read(name: str, reader: QueueReader) -> Reading:
    try:
        return reader.read()
    except Exception as error:
        log.warning("the metrics of %s cannot be read: %s", name, error)
        return reader.known()


class _Collector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()

    def describe(self) -> Iterable[Metric]:
        return ()  # else registering it would read the databases


def _of_queues(readings: list[tuple[str, Reading]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("xq_up", "1 if the last read of the queue succeeded, else 0.", labels=["queue"])
    tasks = GaugeMetricFamily("xq_tasks", "Tasks in each state.", labels=["queue", "tube", "state"])
    moved = CounterMetricFamily(
        "xq_transitions", "Transitions of tasks; X is no task.", labels=["queue", "tube", "source", "target"]
    )
    events = CounterMetricFamily(
        "xq_events", "Calls and timers that moved tasks (feature events).", labels=["queue", "event"]
    )
    reaped = CounterMetricFamily(
        "xq_reaped", "Tasks released because the process of their owner ended.", labels=["queue"]
    )
    oldest = GaugeMetricFamily(
        "xq_oldest_ready_seconds", "Age of the task that has been ready for longest; 0 without one.", labels=["queue"]
    )
    sessions = GaugeMetricFamily("xq_sessions", "Open sessions that take from the queue.", labels=["queue"])
    paused = GaugeMetricFamily(
        "xq_paused", "1 if the queue (tube is empty) or the tube is paused.", labels=["queue", "tube"]
    )
    takes = HistogramMetricFamily("xq_take_seconds", "Time in Ready before a take (history).", labels=["queue"])
    acks = HistogramMetricFamily("xq_ack_seconds", "Time in Taken before an ack (history).", labels=["queue"])
    for name, one in readings:
        up.add_metric([name], one.up)
        for tube, counts in one.tasks.items():
            for state, n in counts.items():
                tasks.add_metric([name, tube, state], n)
        for tube, times in one.transitions.items():
            for transition, n in times.items():
                moved.add_metric([name, tube, *transition.split("-")], n)
        for event, n in (one.events or {}).items():
            events.add_metric([name, event], n)
        for metric, value in ((reaped, one.reaped), (oldest, one.oldest_ready), (sessions, one.sessions)):
            if value is not None:
                metric.add_metric([name], value)
        for tube, is_paused in one.paused.items():
            paused.add_metric([name, tube], is_paused)
        for histogram, counted in ((takes, one.takes), (acks, one.acks)):
            if counted is not None:
                histogram.add_metric([name], list(counted.buckets), counted.sum)
    yield from (up, tasks, moved, events, reaped, oldest, sessions, paused, takes, acks)


def _of_work(work: Work) -> Iterator[Metric]:
    attempts = CounterMetricFamily("xq_attempts", "Attempts of this program's workers.", labels=["queue", "outcome"])
    seconds = HistogramMetricFamily("xq_attempt_seconds", "Time in a worker's function.", labels=["queue"])
    with work.lock:
        for name in dict.fromkeys(work.queues):
            for outcome in OUTCOMES:
                attempts.add_metric([name, outcome], work.attempts[name, outcome])
            seconds.add_metric([name], list(work.seconds[name].buckets), work.seconds[name].sum)
        duties = dict(work.duties)
    yield attempts
    yield seconds
    yield CounterMetricFamily("xq_sweeps", "Runs of the duty that expires timers.", value=duties.get("sweep", 0))
    yield CounterMetricFamily(
        "xq_wakeups", "Notifications that woke a maintenance thread.", value=duties.get("wakeup", 0)
    )
