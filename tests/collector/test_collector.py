"""A real OpenTelemetry Collector gets spans, metrics and logs of three nodes."""

import json
import os
import subprocess
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from taskraft import Client
from tests.turns import blocked_until
from tools.free_addresses import free_addresses
from tools.local_cluster import LocalCluster

PROGRAM = os.environ.get("TASKRAFT_TEST_COLLECTOR", "")
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not PROGRAM, reason="`make real-collector` runs this"),
]


class Backend:
    """Receives what the Collector exports, as JSON."""

    def __init__(self):
        self.received = {"traces": [], "metrics": [], "logs": []}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler):  # noqa: N805 - `self` is the backend
                body = handler.rfile.read(int(handler.headers["content-length"]))
                self.received[handler.path.rpartition("/")[2]].append(json.loads(body))
                handler.send_response(200)
                handler.send_header("content-type", "application/json")
                handler.end_headers()
                handler.wfile.write(b"{}")

            def log_message(handler, *_):  # noqa: N805 - `self` is the backend
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self):
        """Stop receiving."""
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def spans(self):
        """Return the received spans with the name of their service."""
        for batch in list(self.received["traces"]):
            for resource in batch["resourceSpans"]:
                service = attributes_of(resource["resource"])["service.name"]
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        yield service, span

    def metrics(self):
        """Return the received metrics."""
        for batch in list(self.received["metrics"]):
            for resource in batch["resourceMetrics"]:
                for scope in resource["scopeMetrics"]:
                    yield from scope["metrics"]

    def logs(self):
        """Return the received log records."""
        for batch in list(self.received["logs"]):
            for resource in batch["resourceLogs"]:
                for scope in resource["scopeLogs"]:
                    yield from scope["logRecords"]


def attributes_of(found):
    return {one["key"]: next(iter(one["value"].values())) for one in found["attributes"]}


@contextmanager
def collector(folder, address, backend, cluster):
    """Run a Collector that exports everything to the backend."""
    scraped = {
        "job_name": "taskraft-http",
        "scrape_interval": "500ms",
        "scrape_protocols": ["OpenMetricsText1.0.0", "PrometheusText0.0.4"],
        "static_configs": [{"targets": [node.http_address for node in cluster.nodes]}],
    }
    parsed = {
        "type": "json_parser",
        "trace": {
            "trace_id": {"parse_from": "attributes.trace_id"},
            "span_id": {"parse_from": "attributes.span_id"},
        },
    }
    exporter = {
        "endpoint": f"http://127.0.0.1:{backend.server.server_port}",
        "encoding": "json",
        "compression": "none",
    }
    receivers = {"traces": "otlp", "metrics": "prometheus", "logs": "filelog"}
    config = {
        "receivers": {
            "otlp": {"protocols": {"http": {"endpoint": address}}},
            "prometheus": {"config": {"scrape_configs": [scraped]}},
            "filelog": {
                "include": [str(node.log) for node in cluster.nodes],
                "start_at": "beginning",
                "operators": [parsed],
            },
        },
        "exporters": {"otlp_http": exporter},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                kind: {"receivers": [receiver], "exporters": ["otlp_http"]}
                for kind, receiver in receivers.items()
            },
        },
    }
    (folder / "collector.yaml").write_text(yaml.safe_dump(config))
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, f"--config=file:{folder / 'collector.yaml'}"], stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def spans_to(monkeypatch):
    """Return a function that lets this process export its spans to an address."""
    providers = []

    def begin(address):
        provider = TracerProvider()
        exporter = OTLPSpanExporter(f"http://{address}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
        providers.append(provider)

    yield begin
    for provider in providers:
        provider.shutdown()


def test_a_real_collector_gets_traces_metrics_and_logs_that_belong_together(tmp_path, spans_to):
    (address,) = free_addresses(1)
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "TASKRAFT_LOG_LEVEL": "debug",
    }
    with (
        closing(Backend()) as backend,
        LocalCluster(3, tmp_path / "cluster", settings) as cluster,
        collector(tmp_path, address, backend, cluster) as process,
    ):
        blocked_until(lambda: process.poll() is not None or list(backend.metrics()))
        assert process.poll() is None, (tmp_path / "collector.log").read_text()
        spans_to(address)
        with Client(cluster.target) as client:
            client.create_tube("mail")
            client.tube("mail").put("x")
            with client.tube("mail").take():
                pass
        wanted = {"send mail", "taskraft.v1.TaskService/PutTasks", "apply Put", "task mail"}
        blocked_until(lambda: {span["name"] for _, span in backend.spans()} >= wanted)
        check_spans(backend)
        (trace_id,) = {span["traceId"] for _, span in backend.spans() if span["name"] in wanted}
        blocked_until(lambda: trace_id in {one.get("traceId") for one in backend.logs()})
        blocked_until(lambda: trace_id in exemplars_of(backend, "taskraft_call_seconds"))


def check_spans(backend):
    """Check the parents of the spans of one put."""
    by_name = {span["name"]: (service, span) for service, span in backend.spans()}
    _, send = by_name["send mail"]
    service, put = by_name["taskraft.v1.TaskService/PutTasks"]
    _, applied = by_name["apply Put"]
    _, task = by_name["task mail"]
    assert service == "taskraft-server"
    assert put["parentSpanId"] == task["parentSpanId"] == send["spanId"]
    assert applied["parentSpanId"] == put["spanId"]
    assert [event["name"] for event in task["events"]] == ["put", "take", "ack"]


def exemplars_of(backend, name):
    """Return the trace ids in the exemplars of a histogram."""
    return {
        exemplar["traceId"]
        for metric in backend.metrics()
        if metric["name"] == name
        for point in metric["histogram"]["dataPoints"]
        for exemplar in point.get("exemplars", ())
        if "traceId" in exemplar
    }
