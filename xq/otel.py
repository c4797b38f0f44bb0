"""OpenTelemetry spans for puts, handlers and task ends. It needs `pip install '.[otel]'`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from xq.api import Queue
from xq.core.errors import ConfigurationError
from xq.core.machine import TAKEN
from xq.runtime.lease import current
from xq.workers.outcomes import Discard, Next, Retry, Suspended, outcome_of

# The kind of each span, and its operation's. By the last four calls an owner ends its take.
SPAN_KINDS = {"put": (SpanKind.PRODUCER, "send"), "process": (SpanKind.CONSUMER, "process")}
SPAN_KINDS |= dict.fromkeys(("ack", "release", "bury", "kill"), (SpanKind.CLIENT, "settle"))
KEPT = 10_000  # handled tasks whose end is awaited
_W3C = TraceContextTextMapPropagator()


def instrument(model: Any, tracer_provider: TracerProvider | None = None, *, parent: bool = False) -> None:
    """Make spans for a queue from now on; does nothing if it has them. `model` is the model or its queue.

    A put is a PRODUCER span: its context goes into the role `trace`, if that is mapped and the task has none. A call
    to the worker's function is a CONSUMER span `process` in its own trace, linked to the put. With `parent`,
    the first attempt is a child of the put instead. An ack, release, bury or kill of a taken task is a CLIENT span.
    """
    queue: Queue[Any] = getattr(model, "xq", model)
    if not hasattr(queue, "parts"):
        raise ConfigurationError(f"instrument takes an upgraded model or its queue, not {model!r}")
    if queue.parts.observers.around_put is not None:
        return
    spans = _Spans(queue, trace.get_tracer("xq", tracer_provider=tracer_provider), parent)
    queue.parts.observers.around_put = spans.put
    queue.parts.observers.around_work = spans.process
    for handler in queue.handlers.values():
        handler.around(spans.process)
    queue.on_change(spans.settled)


class _Spans:
    """Makes one queue's spans."""

    def __init__(self, queue: Queue[Any], tracer: Tracer, parent: bool) -> None:
        self._name, self._tasks = queue.name, queue.parts.tasks
        self._tracer, self._parent = tracer, parent
        self._handled: OrderedDict[Any, Context] = OrderedDict()  # by key: the ended function's span

    @contextmanager
    def _span(self, operation: str, tasks: Sequence[Any] = (), context: Context | None = None) -> Iterator[Span]:
        """Run the block within a span that is linked to the tasks' puts."""
        attributes = {
            "messaging.system": "xq",
            "messaging.destination.name": self._name,
            "messaging.operation.name": operation,
            "messaging.operation.type": SPAN_KINDS[operation][1],
        }
        span = self._tracer.start_span(
            f"{operation} {self._name}",
            context,
            SPAN_KINDS[operation][0],
            attributes | self._message(tasks),
            [Link(trace.get_current_span(origin).get_span_context()) for origin in map(self._origin, tasks) if origin],
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as error:
                span.set_attribute("xq.outcome", outcome_of(error))
                if not isinstance(error, (Retry, Discard, Next, Suspended)):  # these are decisions of the function
                    span.record_exception(error)
                    span.set_attribute("error.type", error.__class__.__qualname__)
                    span.set_status(StatusCode.ERROR)  # without the message: it may hold the data of a task
                raise

    def _message(self, tasks: Sequence[Any]) -> dict[str, Any]:
        if len(tasks) == 1:
            return {"messaging.message.id": str(self._key(tasks[0]))}
        return {"messaging.batch.message_count": len(tasks)} if tasks else {}

    def _key(self, task: Any) -> Any:
        return self._tasks.app_key(self._tasks.identify(task)[0])

    def _origin(self, task: Any) -> Context:
        """Return the context that a task carries: an empty one if it carries none, or something else."""
        carried = self._tasks.in_role(task, "trace")
        return _W3C.extract({"traceparent": carried} if isinstance(carried, str) else {}, Context())

    def put(self, put: Callable[[str | None], list[Any]], n: int) -> list[Any]:
        """Put tasks within a span, whose context they carry."""
        with self._span("put") as span:
            carrier: dict[str, str] = {}
            _W3C.inject(carrier)
            tasks = put(carrier.get("traceparent"))
            span.set_attributes(self._message(tasks))
            return tasks

    @contextmanager
    def process(self, task: Any) -> Iterator[None]:
        """Run a worker's function within a span. It may get a batch, so the lease names the tasks."""
        lease = current()
        tasks = [attempt.task for attempt in lease.taken]
        is_child = self._parent and len(tasks) == 1 and lease.attempt <= 1
        context = self._origin(tasks[0]) if is_child else Context()
        with self._span("process", tasks, context) as span:
            self._handled |= dict.fromkeys(map(self._key, tasks), trace.set_span_in_context(span, Context()))
            while len(self._handled) > KEPT:
                self._handled.popitem(last=False)
            span.set_attribute("xq.attempt", lease.attempt)
            yield
            has_failed = isinstance(task, list) and bool(getattr(task, "failed", None))
            span.set_attribute("xq.outcome", "failed" if has_failed else "returned")

    def settled(self, task: Any, event: str, source: str, target: str) -> None:
        """Make a span when a take's end has committed: a child of the function's span, else linked to the put."""
        if source == TAKEN and event in SPAN_KINDS:
            context = self._handled.pop(self._key(task), None)
            is_within = trace.get_current_span().get_span_context().is_valid  # the function, or a span of the program
            with self._span(event, [task], None if is_within else context) as span:
                span.set_attribute("xq.state", target)
