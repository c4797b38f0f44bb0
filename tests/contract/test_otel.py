"""OpenTelemetry: the spans of puts, handlers and ends of tasks, and the context that a task carries."""

from __future__ import annotations

import peewee as pw
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import xq
import xq.otel

FULL = {"buried": True, "delayed": True, "keep": True}
ROLES = ("runat", "attempts", "trace")
TRACE = {"trace": pw.CharField(max_length=64, null=True)}
FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A provider of tracers, and the spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name=""):
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]

    def one(self, name):
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traced():
    return Traced()


@pytest.fixture
def queue(make, traced):
    Task = make(FULL, roles=ROLES, attributes=TRACE)
    xq.otel.instrument(Task, traced.provider)
    return Task


def links(span):
    return [link.context.span_id for link in span.links]


def test_a_put_is_a_span_whose_context_the_task_carries(queue, traced):
    task = queue.put({"name": "a"})
    span = traced.one("put Task")
    assert span.kind is SpanKind.PRODUCER
    assert dict(span.attributes) == {
        "messaging.system": "xq",
        "messaging.destination.name": "Task",
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
        "messaging.message.id": str(task.id),
    }
    assert task.trace.startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")


def test_a_put_of_several_tasks_is_one_span(queue, traced):
    put = queue.xq.put_many([{}, {"trace": FOREIGN}, {"name": "b"}])
    span = traced.one("put")
    assert span.attributes["messaging.batch.message_count"] == 3
    assert [task.trace for task in put] == [put[0].trace, FOREIGN, put[0].trace]
    assert f"{span.context.span_id:016x}" in put[0].trace


@pytest.mark.parametrize("make_task", [lambda Task: {"trace": FOREIGN}, lambda Task: Task(trace=FOREIGN)])
def test_the_context_that_a_task_brings_stays(queue, make_task):
    assert queue.put(make_task(queue)).trace == FOREIGN


def test_a_refused_put_is_a_failed_span(queue, traced):
    with pytest.raises(xq.BadType):
        queue.put(7)
    span = traced.one("put")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "BadType"


def test_without_the_role_a_put_is_a_span_and_no_task_changes(make, traced):
    Task = make(FULL)
    xq.otel.instrument(Task, traced.provider)
    Task.put({})
    assert traced.one("put Task").attributes["messaging.message.id"] == "1"


def test_a_function_runs_in_a_span_that_is_linked_to_the_put(queue, traced):
    @queue.xq.worker
    def work(task):
        pass

    task = queue.put({})
    work.run(until_empty=True)
    put, process = traced.one("put"), traced.one("process")
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is None
    assert process.context.trace_id != put.context.trace_id
    assert links(process) == [put.context.span_id]
    assert dict(process.attributes) == {
        "messaging.system": "xq",
        "messaging.destination.name": "Task",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(task.id),
        "xq.attempt": 1,
        "xq.outcome": "returned",
    }


def test_the_ack_after_a_function_is_a_child_of_its_span(queue, traced):
    @queue.xq.worker
    def work(task):
        pass

    queue.put({})
    work.run(until_empty=True)
    ack, process = traced.one("ack Task"), traced.one("process")
    assert ack.kind is SpanKind.CLIENT
    assert ack.attributes["messaging.operation.type"] == "settle"
    assert ack.parent.span_id == process.context.span_id
    assert links(ack) == [traced.one("put").context.span_id]


def test_a_worker_that_was_there_before_has_spans_too(make, traced):
    Task = make(FULL, roles=ROLES, attributes=TRACE)

    @Task.xq.worker
    def work(task):
        pass

    xq.otel.instrument(Task, traced.provider)
    Task.put({})
    work.run(until_empty=True)
    assert len(traced.spans("process")) == 1


def test_a_retry_has_a_trace_of_its_own_linked_to_the_put(make, traced):
    Task = make(FULL, roles=ROLES, attributes=TRACE)
    xq.otel.instrument(Task, traced.provider, parent=True)

    @Task.xq.worker(max_attempts=2, backoff=[0])
    def work(task):
        raise ValueError("secret")

    Task.put({})
    work.run(until_empty=True)
    put, (first, second) = traced.one("put"), traced.spans("process")
    assert first.context.trace_id == put.context.trace_id
    assert first.parent.span_id == put.context.span_id
    assert second.parent is None
    assert links(first) == links(second) == [put.context.span_id]
    assert [span.attributes["xq.attempt"] for span in (first, second)] == [1, 2]
    assert first.status.status_code is StatusCode.ERROR
    assert (first.attributes["error.type"], first.attributes["xq.outcome"]) == ("ValueError", "failed")
    assert first.status.description is None
    assert traced.one("release").parent.span_id == first.context.span_id
    assert traced.one("bury").parent.span_id == second.context.span_id


@pytest.mark.parametrize(
    ("error", "outcome", "failed"),
    [(xq.Retry(delay=60), "retry", False), (xq.Bury("no"), "bury", True), (xq.Discard(), "discard", False)],
)
def test_what_a_function_decides_is_the_outcome(queue, traced, error, outcome, failed):
    @queue.xq.worker
    def work(task):
        raise error

    queue.put({})
    work.run(until_empty=True)
    process = traced.one("process")
    assert process.attributes["xq.outcome"] == outcome
    assert (process.status.status_code is StatusCode.ERROR) == failed


def test_a_batch_is_one_span_with_a_link_for_each_task(queue, traced):
    @queue.xq.worker(batch=3)
    def work(batch):
        batch.fail(batch[1], "no")

    for _ in range(3):
        queue.put({})
    queue.xq.run(max_tasks=3)
    process = traced.one("process")
    assert links(process) == [span.context.span_id for span in traced.spans("put")]
    assert process.attributes["messaging.batch.message_count"] == 3
    assert process.attributes["xq.batch.failed"] == 1
    assert len(traced.spans("ack")) == 2
    assert len(traced.spans("release")) == 1


def test_an_ack_without_a_worker_is_linked_to_the_put(queue, traced):
    queue.put({})
    queue.take().ack()
    assert links(traced.one("ack")) == [traced.one("put").context.span_id]


def test_a_task_that_carries_nonsense_has_no_link(queue, traced):
    queue.put({"trace": "nonsense"})
    queue.take().ack()
    assert links(traced.one("ack")) == []


def test_an_async_function_has_a_span(queue, traced):
    @queue.xq.worker
    async def work(task):
        with traced.provider.get_tracer("app").start_as_current_span("inner"):
            pass

    queue.put({})
    work.run(until_empty=True)
    process = traced.one("process")
    assert traced.one("inner").parent.span_id == process.context.span_id
    assert traced.one("ack").parent.span_id == process.context.span_id


def test_a_queue_is_instrumented_once(queue, traced):
    xq.otel.instrument(queue.xq, traced.provider)
    queue.put({})
    assert len(traced.spans("put")) == 1


def test_what_is_no_queue_is_refused():
    with pytest.raises(xq.ConfigurationError, match="upgraded model"):
        xq.otel.instrument(object())


def test_concurrent_puts_of_coroutines_keep_their_callers(queue, traced):
    import asyncio

    tracer = traced.provider.get_tracer("app")

    async def request(n):
        with tracer.start_as_current_span(f"request {n}"):
            return await queue.xq.aio.put({"name": str(n)})

    async def requests():
        return await asyncio.gather(*map(request, range(5)))

    asyncio.run(requests())
    callers = {span.context.span_id for span in traced.spans("request")}
    assert {span.parent.span_id for span in traced.spans("put")} == callers
    assert len(callers) == 5
