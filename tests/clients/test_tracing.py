"""Spans follow the messaging conventions of OpenTelemetry."""

import asyncio
import gzip
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from taskraft import AsyncClient, Batch, Client, _spans, errors, tracing
from taskraft._spans import ClientSpans

SENT = {
    "messaging.system": "taskraft",
    "messaging.destination.name": "emails",
    "messaging.client.id": "me",
}


@pytest.fixture
def provider(monkeypatch):
    """A tracer provider as an application would set it, for one test."""
    one = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: one)
    return one


@pytest.fixture
def spans(provider):
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter.get_finished_spans


@pytest.fixture
def client(emails, spans):
    """Return a client of the node in memory, traced."""
    with Client(name="me") as one:
        yield one


def named(spans, name):
    (found,) = [span for span in spans() if span.name == name]
    return found


def chosen(span, *names):
    return {name: span.attributes.get(f"messaging.{name}") for name in names}


def test_a_put_with_a_request_id_has_a_span_and_no_header(client, calls, spans):
    """The trace context would make the put of another process a different request."""
    first = client.tube("emails").put("hello", request_id="order-4711")
    assert client.tube("emails").put("hello", request_id="order-4711") == first
    assert [span.name for span in spans()] == ["send emails"] * 2
    assert not calls.requests("PutTasks")[0].tasks[0].headers


def test_a_task_is_traced_from_its_put_to_its_acknowledgement(client, spans):
    tube = client.tube("emails")
    task_id = tube.put("hello")
    with tube.take(wait=0):
        pass
    send, receive, process, ack = (
        named(spans, f"{operation} emails") for operation in ("send", "receive", "process", "ack")
    )
    assert [span.kind for span in (send, receive, process, ack)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    for span, name, kind in (
        (send, "send", "send"),
        (receive, "receive", "receive"),
        (process, "process", "process"),
        (ack, "ack", "settle"),
    ):
        assert span.attributes.items() >= SENT.items()
        assert chosen(span, "operation.name", "operation.type", "message.id") == {
            "operation.name": name,
            "operation.type": kind,
            "message.id": str(task_id),
        }
    for span in (receive, process, ack):
        assert [link.context.span_id for link in span.links] == [send.context.span_id]
    assert process.parent is None, "linked, not a child"
    assert chosen(process, "taskraft.attempt", "taskraft.wait_ms") == {
        "taskraft.attempt": 1,
        "taskraft.wait_ms": 0,
    }
    assert send.instrumentation_scope.schema_url.startswith("https://opentelemetry.io/schemas/")


def test_the_context_of_the_put_travels_in_the_headers(calls, client, spans, provider):
    with provider.get_tracer("test").start_as_current_span("request") as request:
        client.tube("emails").put("hello", headers={"mine": "x"})
    send = named(spans, "send emails")
    assert send.parent.span_id == request.get_span_context().span_id
    headers = calls.requests("PutTasks")[0].tasks[0].headers
    trace_id, span_id = f"{send.context.trace_id:032x}", f"{send.context.span_id:016x}"
    assert headers["traceparent"].startswith(f"00-{trace_id}-{span_id}-0".encode())
    assert headers["mine"] == b"x"


def test_a_context_set_by_the_user_is_kept(calls, client):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.tube("emails").put("hello", headers={"traceparent": given})
    assert calls.requests("PutTasks")[0].tasks[0].headers["traceparent"] == given.encode()


def test_traceparent_and_tracestate_come_from_the_same_context(calls, client, provider):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    state = trace.TraceState([("vendor", "x")])
    here = trace.SpanContext(1, 2, is_remote=False, trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(here)):
        client.tube("emails").put("hello", headers={"traceparent": given})
    assert "tracestate" not in calls.requests("PutTasks")[0].tasks[0].headers


def test_work_inside_the_block_is_a_child_of_the_processing(client, spans, provider):
    client.tube("emails").put("hello")
    with client.tube("emails").take(wait=0), provider.get_tracer("t").start_as_current_span("work"):
        pass
    process = named(spans, "process emails")
    assert named(spans, "work").parent.span_id == process.context.span_id


def test_each_attempt_has_a_span_of_its_own_and_failures_are_typed(client, spans):
    tube = client.tube("emails")
    tube.put("hello")
    with pytest.raises(ZeroDivisionError), tube.take(wait=0):
        _ = 1 / 0
    with tube.take(wait="1m"):
        pass
    first, second = [span for span in spans() if span.name == "process emails"]
    assert first.attributes["error.type"] == "ZeroDivisionError"
    assert first.status.status_code is StatusCode.ERROR
    assert second.attributes["messaging.taskraft.attempt"] == 2
    assert "error.type" not in second.attributes


def test_a_refused_call_is_typed_by_its_reason(client, spans):
    with pytest.raises(errors.TubeNotFound):
        client.tube("missing").put("a")
    assert named(spans, "send missing").attributes["error.type"] == "TUBE_NOT_FOUND"


def test_lists_count_their_tasks(client, spans):
    client.tube("emails").put_many(["a", "b", "c"])
    with client.subscribe("emails") as tasks:
        batch = tasks.next_batch()
        while len(batch) < 3:
            batch += tasks.next_batch()
        tasks.ack(batch)
    send, ack = named(spans, "send emails"), named(spans, "ack emails")
    assert send.attributes["messaging.batch.message_count"] == 3
    assert ack.attributes["messaging.batch.message_count"] == 3
    assert len(ack.links) == 3
    received = [span for span in spans() if span.name == "receive emails"]
    assert sum(span.attributes["messaging.batch.message_count"] for span in received) == 3


def test_an_empty_take_creates_no_span(client, spans):
    assert client.tube("emails").take(wait=0) is None
    assert not spans()


def test_the_put_may_be_the_parent_of_the_processing(emails, spans, monkeypatch):
    monkeypatch.setenv("TASKRAFT_TRACE_PARENT", "1")
    with Client() as client:
        client.tube("emails").put("hello")
        with client.tube("emails").take(wait=0):
            pass
    send, process = named(spans, "send emails"), named(spans, "process emails")
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id


async def test_the_asynchronous_client_is_traced_too(async_kit, spans):
    async with AsyncClient() as client:
        await client.tube("emails").put("hello")
        async with await client.tube("emails").take(wait=0):
            pass
    assert {span.name for span in spans()} == {
        "send emails",
        "receive emails",
        "process emails",
        "ack emails",
    }


def test_without_a_provider_there_is_no_tracing(calls):
    with Client() as client:
        client.tube("emails").put("a")
        assert not calls.requests("PutTasks")[0].tasks[0].headers
    assert tracing.current_spans("me") is None


@pytest.mark.parametrize(
    ("environment", "is_asked_for"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, False),
    ],
)
def test_the_standard_variables_ask_for_traces(environment, is_asked_for):
    assert tracing.is_asked_for(environment) is is_asked_for


def run(code, **environment):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


@pytest.mark.real_time
def test_a_program_exports_what_the_environment_asks_for():
    code = """
        from taskraft import tracing
        print(tracing.configure_from_environment("mine"))
        print(tracing.configure_from_environment("mine"))
        with tracing.current_spans("me").send("emails", []):
            pass
    """
    done = run(code, OTEL_TRACES_EXPORTER="console")
    assert done.stdout.startswith("True\nFalse\n"), done.stderr
    assert '"send emails"' in done.stdout
    assert '"service.name": "mine"' in done.stdout


@pytest.fixture
def collector():
    """An OTLP endpoint; ``received`` holds the exported requests."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            server.received.append((self.path, ExportTraceServiceRequest.FromString(content)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        server.received = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.real_time
def test_spans_reach_a_collector(collector, cluster):
    code = f"""
        from taskraft import Client, tracing
        assert tracing.configure_from_environment("mine")
        with Client("{cluster.target}") as client:
            client.tube("emails").put("a")
    """
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    done = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_SERVICE_NAME="theirs")
    assert (done.returncode, done.stderr) == (0, "")
    ((path, request),) = collector.received
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    assert ("service.name", "theirs") in [
        (each.key, each.value.string_value) for each in resource.resource.attributes
    ]
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["send emails"]


@pytest.mark.real_time
def test_an_unknown_exporter_is_refused():
    code = "from taskraft import tracing; tracing.configure_from_environment()"
    assert "must be otlp, console or none" in run(code, OTEL_TRACES_EXPORTER="zipkin").stderr
    refused = run(code, OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_PROTOCOL="grpc").stderr
    assert 'OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"; it must be http/protobuf' in refused


@pytest.mark.real_time
def test_without_the_extra_a_clear_error_says_what_to_install():
    code = """
        import sys
        sys.modules["opentelemetry"] = None
        from taskraft import tracing
        tracing.configure_from_environment()
    """
    assert "pip install 'taskraft[otel]'" in run(code, OTEL_TRACES_EXPORTER="otlp").stderr


def nodes_of(spans):
    """Return the node of each span that has one."""
    return {
        span.name: (span.attributes["server.address"], span.attributes["server.port"])
        for span in spans()
        if "server.port" in span.attributes
    }


@pytest.mark.real_time
async def test_spans_name_the_node_that_answered(cluster, spans):
    host, port = cluster.target.split(":")
    async with AsyncClient(cluster.target) as client:
        emails = client.tube("emails")
        await asyncio.gather(emails.put("a"), emails.put("b"))
        async with await emails.take():
            await client.execute(Batch().put(emails.task("c")))
        async with client.subscribe("emails") as tasks:
            await (await anext(tasks)).release(0)
    assert nodes_of(spans) == dict.fromkeys(
        ("send emails", "receive emails", "ack emails", "release emails"), (host, int(port))
    )
    named_nodes = [span for span in spans() if "server.port" in span.attributes]
    assert len(named_nodes) == len([one for one in spans() if one.name != "process emails"])


@pytest.mark.real_time
def test_spans_name_the_leader_after_a_refusal(three, spans):
    three.forwards = False
    three.elect(2)
    with Client(three.target) as client:
        client.tube("emails").put("a")
    host, port = three.leader_address.split(":")
    assert nodes_of(spans) == {"send emails": (host, int(port))}


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_OFF)])
def test_a_sampler_that_is_off_costs_no_span(emails, calls, monkeypatch, sampler):
    """Neither attributes nor links are built, and the headers of the tasks stay empty."""
    provider = TracerProvider(sampler=sampler)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    begun = []
    monkeypatch.setattr(ClientSpans, "_attributes", lambda *_: begun.append("attributes"))
    monkeypatch.setattr(_spans, "_links", lambda *_: begun.append("links"))
    with Client() as client:
        emails = client.tube("emails")
        emails.put_many(["a", "b", "c"])
        with emails.take(wait=0):
            pass
        client.execute(Batch().put(emails.task("d")))
        with client.subscribe("emails") as tasks:
            tasks.ack(tasks.next_batch())
    assert begun == []
    (put,) = calls.requests("PutTasks")
    assert not any(spec.headers for spec in put.tasks)


def test_a_sampler_that_is_off_keeps_the_trace_of_the_caller(emails, calls, monkeypatch):
    provider = TracerProvider(sampler=ALWAYS_OFF)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    here = trace.SpanContext(1, 2, is_remote=True)
    with Client() as client, trace.use_span(trace.NonRecordingSpan(here)):
        client.tube("emails").put("a")
    header = calls.requests("PutTasks")[0].tasks[0].headers["traceparent"]
    assert header.startswith(f"00-{1:032x}-".encode())
    assert header.endswith(b"-00")
