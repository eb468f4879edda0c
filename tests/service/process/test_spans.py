"""A node creates spans for calls, commands and tasks, below the spans of its clients."""

import grpc.aio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from taskraft import AsyncClient, errors
from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.process import tracing
from taskraft_service.process.metrics.page import OPEN_METRICS_FORM, TEXT_FORM, MetricsPage
from taskraft_service.process.spans.log_ids import add_trace_ids
from tests.bench.test_worst_requests import LongestRun
from tests.service.conftest import config_in, create, put, running
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

SERVICE = "taskraft.v1.TaskService"
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def provider_of(monkeypatch, sampler):
    provider, exporter = TracerProvider(sampler=ParentBased(sampler)), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    return exporter


@pytest.fixture
def exporter(monkeypatch):
    return provider_of(monkeypatch, ALWAYS_ON)


@pytest.fixture
async def traced(exporter, tmp_path):
    """A node with tracing, and a tube."""
    async with running(config_in(tmp_path)) as node:
        await create(node)
        yield node


def client_of(node):
    return AsyncClient(f"127.0.0.1:{node.server.client_port}", name="me")


async def named(exporter, name):
    """Return the span with a name. A span ends after the client has received the answer."""

    def with_name():
        return [span for span in exporter.get_finished_spans() if span.name == name]

    await turns_until(with_name)
    (found,) = with_name()
    return found


def linked(span):
    return [link.context.span_id for link in span.links]


async def one_task(node):
    """Put, take and acknowledge a task, and let the node read its change feed."""
    async with client_of(node) as client:
        tube = client.tube("emails")
        task_id = await tube.put("x")
        async with await tube.take():
            pass
    for _ in node.server._spans.tasks.read():
        pass
    return task_id


async def test_the_calls_of_a_task_are_in_the_trace_of_its_put(traced, exporter):
    await one_task(traced)
    send = await named(exporter, "send emails")
    for method in ("PutTasks", "TakeTasks", "SettleTasks"):
        span = await named(exporter, f"{SERVICE}/{method}")
        assert span.kind is SpanKind.SERVER
        assert span.attributes["rpc.method"] == method
        assert span.parent.span_id == send.context.span_id
        assert span.context.trace_id == send.context.trace_id


async def test_the_way_of_a_command_through_the_log_is_a_span(traced, exporter):
    await one_task(traced)
    call = await named(exporter, f"{SERVICE}/PutTasks")
    apply = await named(exporter, "apply Put")
    assert apply.parent.span_id == call.context.span_id
    assert apply.attributes["taskraft.log_index"] > 0
    assert call.start_time <= apply.start_time <= apply.end_time <= call.end_time


async def test_a_settlement_in_a_subscription_is_in_the_trace_of_its_task(traced, exporter):
    async with client_of(traced) as client:
        await client.tube("emails").put("x")
        async with client.subscribe("emails", credit=1) as tasks:
            async for task in tasks:
                async with task:
                    pass
                break
    send, settle = (await named(exporter, "send emails")), (await named(exporter, "apply Settle"))
    assert settle.context.trace_id == send.context.trace_id


async def test_the_way_of_a_sampled_task_is_one_span_with_its_transitions(traced, exporter):
    task_id = await one_task(traced)
    span = await named(exporter, "task emails")
    assert span.parent.span_id == (await named(exporter, "send emails")).context.span_id
    assert [event.name for event in span.events] == ["put", "take", "ack"]
    assert [event.attributes["state"] for event in span.events] == ["READY", "TAKEN", "GONE"]
    assert span.attributes["messaging.message.id"] == str(task_id)
    assert span.attributes["messaging.taskraft.outcome"] == "PROCESSED"
    assert span.start_time == span.events[0].timestamp
    assert span.end_time == span.events[-1].timestamp


async def put_with_headers(node, *found):
    tasks = [task_pb2.TaskSpec(headers={"traceparent": one.encode()}) for one in found]
    await node.tasks.PutTasks(pb.PutTasksRequest(tube="emails", tasks=tasks))


async def test_a_put_of_several_traces_is_linked_to_all(traced, exporter):
    other = f"00-{'c' * 32}-{'d' * 16}-01"
    await put_with_headers(traced, TRACEPARENT, other)
    span = await named(exporter, f"{SERVICE}/PutTasks")
    assert span.parent is None
    assert linked(span) == [int("b" * 16, 16), int("d" * 16, 16)]


async def test_a_call_without_a_trace_has_no_span(traced, exporter):
    await put(traced, b"x")
    await put_with_headers(traced, "malformed")
    assert exporter.get_finished_spans() == ()


async def test_a_task_that_is_not_sampled_is_not_followed(monkeypatch, tmp_path):
    exporter = provider_of(monkeypatch, ALWAYS_OFF)
    async with running(config_in(tmp_path)) as node:
        await create(node)
        await one_task(node)
        assert not node.server._spans.tasks._followed
    assert exporter.get_finished_spans() == ()


async def test_a_refused_call_has_a_span_with_an_error(traced, exporter):
    async with client_of(traced) as client:
        with pytest.raises(errors.TubeNotFound):
            await client.tube("missing").put("x")
    assert (await named(exporter, f"{SERVICE}/PutTasks")).status.status_code is StatusCode.ERROR


async def test_the_tasks_of_a_put_with_too_many_are_not_looked_at(traced):
    path, metadata = f"/{SERVICE}/PutTasks", (("traceparent", TRACEPARENT),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{traced.server.client_port}") as channel:
        with LongestRun() as longest, pytest.raises(grpc.aio.AioRpcError, match="more than 1000"):
            await channel.unary_unary(path)(b"\x1a\x00" * 100_000, metadata=metadata)
    assert longest.calls <= 10_000


async def test_the_duration_of_a_sampled_call_has_its_trace_as_exemplar(traced, exporter):
    await one_task(traced)
    registry = traced.server.components.registry
    page = (await MetricsPage(registry, (), lambda: 0.0, OPEN_METRICS_FORM).read()).decode()
    families = {one.name: one for one in text_string_to_metric_families(page)}
    found = [
        sample.exemplar.labels["trace_id"]
        for sample in families["taskraft_call_seconds"].samples
        if sample.labels["method"] == "PutTasks" and sample.exemplar
    ]
    trace_id = (await named(exporter, f"{SERVICE}/PutTasks")).context.trace_id
    assert found == [trace.format_trace_id(trace_id)]
    plain = await MetricsPage(registry, (), lambda: 0.0, TEXT_FORM).read()
    assert b"trace_id" not in plain


def test_a_log_record_of_a_traced_call_has_the_ids_of_the_span(exporter):
    tracer = trace.get_tracer("tests")
    assert add_trace_ids(None, "info", {"event": "e"}) == {"event": "e"}
    with tracer.start_as_current_span("call") as span:
        record = add_trace_ids(None, "info", {"event": "e"})
    assert record["trace_id"] == trace.format_trace_id(span.get_span_context().trace_id)
    assert record["span_id"] == trace.format_span_id(span.get_span_context().span_id)


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, 'PROTOCOL is "grpc"; it must be http/protobuf'),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
            },
            'TRACES_PROTOCOL is "http/json"',
        ),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "must be otlp or none"),
    ],
)
def test_an_export_that_a_node_does_not_support_is_refused(monkeypatch, variables, refused):
    for name, content in {"OTEL_TRACES_EXPORTER": "otlp", **variables}.items():
        monkeypatch.setenv(name, content)
    with pytest.raises(ConfigInvalid, match=refused):
        tracing.export_from_environment()
