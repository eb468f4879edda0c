"""Traces through a node: links between puts, attempts and settlements."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from taskraft import Batch, Client


@pytest.fixture
def spans(monkeypatch):
    """Return a function that lists the finished spans of the process."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter.get_finished_spans


@pytest.fixture
def real_client(taskraft):
    return taskraft.client


@pytest.fixture
def tube(taskraft):
    taskraft.client.create_tube("work")
    return taskraft.client.tube("work")


@pytest.fixture
def traced(taskraft, spans):
    """A client with tracing, different from the client that put the task."""
    with Client(name="worker") as one:
        yield one


def of_kind(spans, tube, operation):
    return [span for span in spans() if span.name == f"{operation} {tube.name}"]


def linked(span):
    return [link.context.span_id for link in span.links]


def created(real_client, tube, suffix, **settings):
    name = f"{tube.name}.{suffix}"
    real_client.create_tube(name, **settings)
    return real_client.tube(name)


def test_each_attempt_is_linked_to_the_put_wherever_the_task_goes(real_client, traced, tube, spans):
    dead = created(real_client, tube, "dead")
    real_client.update_tube(tube.name, dead_letter_tube=dead.name)
    work = traced.tube(tube.name)
    work.put("x")
    (send,) = of_kind(spans, tube, "send")
    for attempt in (1, 2):
        task = work.take(wait=0)
        with task:
            task.release() if attempt == 1 else task.reject("no")
    with traced.tube(dead.name).take(wait=0):
        pass
    runs = of_kind(spans, tube, "process")
    assert [span.attributes["messaging.taskraft.attempt"] for span in runs] == [1, 2]
    (last,) = of_kind(spans, dead, "process")
    for span in (*runs, last, *of_kind(spans, tube, "release"), *of_kind(spans, tube, "reject")):
        assert linked(span) == [send.context.span_id], span.name
        assert span.attributes["messaging.client.id"] == "worker"
    assert len({span.context.span_id for span in (*runs, last)}) == 3


def test_tasks_put_in_a_batch_continue_the_trace(real_client, traced, tube, spans):
    following = created(real_client, tube, "next")
    work = traced.tube(tube.name)
    work.put("x")
    with work.take(wait=0) as task:
        then = traced.tube(following.name)
        (_, put) = traced.execute(Batch().ack(task).put(then.task("y"), then.task("z")))
    (process,) = of_kind(spans, tube, "process")
    (send,) = of_kind(spans, following, "send")
    (ack,) = of_kind(spans, tube, "ack")
    assert (send.kind, ack.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT)
    assert send.parent.span_id == ack.parent.span_id == process.context.span_id
    assert send.attributes["messaging.batch.message_count"] == len(put.put.task_ids) == 2
    assert linked(ack) == linked(process)
    with traced.tube(following.name).take(wait=0):
        pass
    (run,) = of_kind(spans, following, "process")
    assert linked(run) == [send.context.span_id]


def test_a_worker_on_a_stream_sees_the_put_of_each_task(traced, tube, spans):
    work = traced.tube(tube.name)
    ids = [work.put(text) for text in "abc"]
    with traced.subscribe(tube.name) as tasks:
        for task in tasks:
            with task:
                pass
            if task.id == ids[-1]:
                break
    sends = of_kind(spans, tube, "send")
    assert [span.attributes["messaging.message.id"] for span in sends] == [str(one) for one in ids]
    runs = of_kind(spans, tube, "process")
    assert [linked(span) for span in runs] == [[span.context.span_id] for span in sends]
