"""OpenTelemetry: the spans of puts, handlers and ends of tasks, and the context that a task carries."""

from __future__ import annotations

import io
import re

import peewee as pw
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import xq
import xq.otel

FULL = {"buried": True, "delayed": True, "keep": True}
FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced(InMemorySpanExporter):
    """The spans that have ended of a provider of tracers."""

    def __init__(self):
        super().__init__()
        self.provider = TracerProvider()
        self.printed = io.StringIO()
        for exporter in (self, ConsoleSpanExporter(out=self.printed)):
            self.provider.add_span_processor(SimpleSpanProcessor(exporter))

    def spans(self, name):
        return [span for span in self.get_finished_spans() if span.name.startswith(name)]

    def one(self, name):
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traced():
    return Traced()


@pytest.fixture
def plain(make):
    """A queue whose tasks can carry a context, without spans."""
    attributes = {"trace": pw.CharField(max_length=64, null=True)}
    return make(FULL, roles=("runat", "attempts", "trace"), attributes=attributes)


@pytest.fixture
def queue(plain, traced):
    xq.otel.instrument(plain, traced.provider)
    xq.otel.instrument(plain.xq, traced.provider)  # which changes nothing
    return plain


def links(span):
    return [link.context.span_id for link in span.links]


def attributes(operation, kind, key):
    """The attributes of a span of one task by the conventions."""
    return {
        "messaging.system": "xq",
        "messaging.destination.name": "Task",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.message.id": str(key),
    }


def test_a_put_is_a_span_whose_context_the_tasks_carry_but_for_one_that_brings_its_own(queue, traced):
    task = queue.put({"name": "a"})
    put = queue.xq.put_many([{}, {"trace": FOREIGN}, queue(trace=FOREIGN), {"name": "b"}])
    one, several = traced.spans("put Task")
    assert (one.kind, dict(one.attributes)) == (SpanKind.PRODUCER, attributes("put", "send", task.id))
    assert several.attributes["messaging.batch.message_count"] == 4
    for span, traces in ((one, [task.trace]), (several, [put[0].trace, put[3].trace])):
        carried = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}"
        assert {trace.rpartition("-")[0] for trace in traces} == {carried}
    assert [put[1].trace, put[2].trace] == [FOREIGN, FOREIGN]


def test_a_refused_put_is_a_failed_span_and_a_put_without_the_role_a_span(make, traced):
    Task = make(FULL)
    xq.otel.instrument(Task, traced.provider)
    Task.put({})
    with pytest.raises(xq.BadType):
        Task.put(7)
    put, refused = traced.spans("put Task")
    assert put.attributes["messaging.message.id"] == "1"
    assert (refused.status.status_code, refused.attributes["error.type"]) == (StatusCode.ERROR, "BadType")
    with pytest.raises(xq.ConfigurationError, match="upgraded model"):
        xq.otel.instrument(object())


def test_a_function_runs_in_a_span_that_is_linked_to_the_put_and_the_ack_is_a_child_of_it(plain, traced):
    @plain.xq.worker
    def work(task):
        pass

    xq.otel.instrument(plain, traced.provider)  # also of a worker that was there before
    task = plain.put({})
    work.run(until_empty=True)
    put, process, ack = traced.one("put"), traced.one("process"), traced.one("ack Task")
    assert (process.kind, process.parent, ack.kind) == (SpanKind.CONSUMER, None, SpanKind.CLIENT)
    assert process.context.trace_id != put.context.trace_id
    outcome = {"xq.attempt": 1, "xq.outcome": "returned"}
    assert dict(process.attributes) == attributes("process", "process", task.id) | outcome
    assert dict(ack.attributes) == attributes("ack", "settle", task.id) | {"xq.state": "D"}
    assert ack.parent.span_id == process.context.span_id
    assert links(process) == links(ack) == [put.context.span_id]
    assert re.findall(r'"name": "(.*)"', traced.printed.getvalue()) == ["put Task", "process Task", "ack Task"]


def test_a_retry_has_a_trace_of_its_own_linked_to_the_put(plain, traced):
    xq.otel.instrument(plain, traced.provider, parent=True)

    @plain.xq.worker(max_attempts=2, backoff=[0])
    def work(task):
        raise ValueError("secret")

    plain.put({})
    work.run(until_empty=True)
    put, (first, second) = traced.one("put"), traced.spans("process")
    assert (first.context.trace_id, first.parent.span_id) == (put.context.trace_id, put.context.span_id)
    assert second.parent is None
    assert links(first) == links(second) == [put.context.span_id]
    assert [span.attributes["xq.attempt"] for span in (first, second)] == [1, 2]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, None), "it may hold data"
    assert (first.attributes["error.type"], first.attributes["xq.outcome"]) == ("ValueError", "failed")
    assert traced.one("release").parent.span_id == first.context.span_id
    assert traced.one("bury").parent.span_id == second.context.span_id


OUTCOMES = [
    (xq.Retry(delay=60), "retry", StatusCode.UNSET),
    (xq.Bury("no"), "bury", StatusCode.ERROR),
    (xq.Discard(), "discard", StatusCode.UNSET),
    (xq.Next("upload"), "next", StatusCode.UNSET),
]


@pytest.mark.parametrize(("error", "outcome", "status"), OUTCOMES)
def test_what_a_function_decides_is_the_outcome(queue, traced, error, outcome, status):
    @queue.xq.worker
    def work(task):
        raise error

    queue.put({})
    work.run(until_empty=True)
    process = traced.one("process")
    assert (process.attributes["xq.outcome"], process.status.status_code) == (outcome, status)


def test_a_batch_is_one_span_with_a_link_for_each_task(queue, traced):
    @queue.xq.worker(batch=3)
    def work(batch):
        batch.fail(batch[1], "no")

    for _ in range(3):
        queue.put({})
    queue.xq.run(max_tasks=3)
    process = traced.one("process")
    assert links(process) == [span.context.span_id for span in traced.spans("put")]
    assert (process.attributes["messaging.batch.message_count"], process.attributes["xq.outcome"]) == (3, "failed")
    assert (len(traced.spans("ack")), len(traced.spans("release"))) == (2, 1)


def test_an_ack_without_a_worker_is_linked_to_the_put_if_the_task_carries_one(queue, traced):
    queue.put({})
    queue.take().ack()
    queue.put({"trace": "nonsense"})
    queue.take().ack()
    assert [links(span) for span in traced.spans("ack")] == [[traced.spans("put")[0].context.span_id], []]
