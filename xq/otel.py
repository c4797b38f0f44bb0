"""Spans of OpenTelemetry for puts, handlers and ends of tasks: `xq.otel.instrument(Page)`.

They follow the semantic conventions of messaging. It needs `pip install 'xq-tables[otel]'`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from xq.core.errors import ConfigurationError
from xq.core.machine import TAKEN
from xq.runtime.lease import current
from xq.runtime.workers.outcomes import Bury, Outcome, outcome_of

if TYPE_CHECKING:
    from xq.handle import Queue
    from xq.runtime.workers.attempts import Batch

SETTLES = frozenset({"ack", "release", "bury", "kill"})  # the calls by which an owner ends its take
KEPT = 10_000  # handled tasks whose end is awaited
MOST_LINKS = 128  # of one span: what the SDK keeps by default

_W3C = TraceContextTextMapPropagator()


def instrument(model: Any, tracer_provider: TracerProvider | None = None, *, parent: bool = False) -> None:
    """Make spans for a queue from now on; does nothing if it has them. `model` is the model or its queue.

    A put is a PRODUCER span, whose context goes into the role `trace`, if that is mapped and the task has none. A
    call of the worker's function is a CONSUMER span `process` in a trace of its own, linked to the put. With `parent`,
    the first attempt is a child of the put instead. An ack, release, bury or kill of a taken task is a CLIENT span.
    """
    queue: Queue[Any] = getattr(model, "xq", model)
    if not hasattr(queue, "adapter"):
        raise ConfigurationError(f"instrument takes an upgraded model or its queue, not {model!r}")
    if queue.adapter.observers.around_put is not None:
        return
    spans = _Spans(queue, trace.get_tracer("xq", tracer_provider=tracer_provider), parent)
    queue.adapter.observers.around_put = spans.put
    queue.adapter.observers.around_work = spans.process
    for handler in queue.handlers.values():
        handler.around(spans.process)
    queue.on_change(spans.settled)


class _Spans:
    """Makes the spans of one queue."""

    def __init__(self, queue: Queue[Any], tracer: Tracer, parent: bool) -> None:
        self._queue = queue
        self._tracer = tracer
        self._parent = parent
        self._handled: OrderedDict[Any, Context] = OrderedDict()  # by key: the span of the function that has ended

    def _attributes(self, operation: str, kind: str, tasks: Sequence[Any] = ()) -> dict[str, Any]:
        found = {
            "messaging.system": "xq",
            "messaging.destination.name": self._queue.name,
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
        }
        return found | self._message(tasks)

    def _message(self, tasks: Sequence[Any]) -> dict[str, Any]:
        if len(tasks) == 1:
            return {"messaging.message.id": str(self._key(tasks[0]))}
        return {"messaging.batch.message_count": len(tasks)} if tasks else {}

    def _key(self, task: Any) -> Any:
        tasks = self._queue.adapter.tasks
        return tasks.app_key(tasks.identify(task)[0])

    def _origin(self, task: Any) -> Context | None:
        """Return the context that a task carries; None if it carries none, or something else."""
        carried = self._queue.adapter.tasks.in_role(task, "trace")
        if not isinstance(carried, str):
            return None
        found = _W3C.extract({"traceparent": carried}, Context())
        return found if trace.get_current_span(found).get_span_context().is_valid else None

    def _links(self, tasks: Sequence[Any]) -> list[Link]:
        origins = [origin for task in tasks[:MOST_LINKS] if (origin := self._origin(task)) is not None]
        return [Link(trace.get_current_span(origin).get_span_context()) for origin in origins]

    # put

    def put(self, put: Callable[[str | None], list[Any]], n: int) -> list[Any]:
        """Put tasks within a span, whose context they carry."""
        attributes = self._attributes("put", "send")
        name = f"put {self._queue.name}"
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.PRODUCER, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            carrier: dict[str, str] = {}
            _W3C.inject(carrier)
            try:
                tasks = put(carrier.get("traceparent"))
            except BaseException as error:
                _fail(span, error)
                raise
            if span.is_recording():
                span.set_attributes(self._message(tasks))
            return tasks

    # process

    @contextmanager
    def process(self, task: Any) -> Iterator[None]:
        """Run the function of a worker within a span. What it gets may be a batch, so the lease names the tasks."""
        lease = current()
        tasks = [attempt.task for attempt in lease.taken]
        origin = self._origin(tasks[0]) if self._parent and len(tasks) == 1 and lease.attempt <= 1 else None
        attributes = self._attributes("process", "process", tasks)
        if lease.attempt:
            attributes["xq.attempt"] = lease.attempt
        with self._tracer.start_as_current_span(
            f"process {self._queue.name}",
            context=Context() if origin is None else origin,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=self._links(tasks),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            self._await_end(tasks, trace.set_span_in_context(span, Context()))
            try:
                yield
            except BaseException as error:
                span.set_attribute("xq.outcome", outcome_of(error))
                if isinstance(error, Outcome) and not isinstance(error, Bury):
                    raise  # the function has decided: no failure
                _fail(span, error)
                raise
            failed: Batch[Any] | tuple[()] = getattr(task, "failed", ())
            if isinstance(task, list) and failed:
                span.set_attributes({"xq.outcome": "failed", "xq.batch.failed": len(failed)})
            else:
                span.set_attribute("xq.outcome", "returned")

    def _await_end(self, tasks: Sequence[Any], context: Context) -> None:
        for task in tasks:
            self._handled[self._key(task)] = context
        while len(self._handled) > KEPT:
            self._handled.popitem(last=False)

    # settle

    def settled(self, task: Any, event: str, source: str, target: str) -> None:
        """Make a span for the end of a take, after its commit: a child of the function's, else linked to the put."""
        if source != TAKEN or event not in SETTLES:
            return
        context = self._handled.pop(self._key(task), None)
        if trace.get_current_span().get_span_context().is_valid:
            context = None  # within the function, or within a span of the application
        span = self._tracer.start_span(
            f"{event} {self._queue.name}",
            context=context,
            kind=SpanKind.CLIENT,
            attributes={**self._attributes(event, "settle", [task]), "xq.state": target},
            links=self._links([task]),
        )
        span.end()


def _fail(span: Span, error: BaseException) -> None:
    """Mark a span as failed. The message of the error is left out of the status: it may hold the data of a task."""
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))
