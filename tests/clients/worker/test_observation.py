"""What a worker tells: probes, metrics, log fields, spans, a blocked loop, a lost cluster."""

import asyncio
import json
import logging
import threading
import urllib.error
import urllib.request

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from taskraft.cli.json_formatter import JsonFormatter
from taskraft.worker import App, TaskLogFilter, health
from tests.clients.worker import handlers
from tests.clients.worker.handlers import pass_virtual, released, running
from tests.clients.worker.test_worker import WAIT
from tools.local_cluster import LocalCluster


class Lines(logging.Handler):
    """Collects log records, and wakes threads that wait for one."""

    def __init__(self):
        super().__init__()
        self.addFilter(TaskLogFilter())
        self.records = []
        self._changed = threading.Condition()

    def emit(self, record):
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    def wait(self, text):
        """Wait for a line with a text, and return its record."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.find(text), 60), text
            return self.find(text)[0]

    def find(self, text):
        return [record for record in self.records if text in record.getMessage()]


@pytest.fixture
def lines(caplog):
    caplog.set_level("INFO")
    found = Lines()
    logging.getLogger().addHandler(found)
    yield found
    logging.getLogger().removeHandler(found)


def fetch(app, path):
    """Return status and text of a page of the worker's probe server."""
    (port,) = app._worker.ports
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.real_time
async def test_probes_follow_the_life_of_a_worker(app, lines):
    block = app.task(handlers.block)
    async with running(app, health="127.0.0.1:0", threads=4):
        await block.aput()
        await handlers.begun.wait()
        pages = [await asyncio.to_thread(fetch, app, path) for path in ("/livez", "/readyz", "/")]
        assert pages == [(200, "running\n"), (200, "running\n"), (404, "not found\n")]
        app.stop()
        await asyncio.to_thread(lines.wait, "test: draining")
        assert await asyncio.to_thread(fetch, app, "/readyz") == (503, "draining\n")
        assert await asyncio.to_thread(fetch, app, "/livez") == (200, "draining\n")
        released.set()


async def page_with(app, lines):
    """Fetch the metrics until they have all lines: an attempt is counted after its settlement."""
    async with asyncio.timeout(30):
        text = ""
        while not all(line in text for line in lines):
            status, text = await asyncio.to_thread(fetch, app, "/metrics")
        return status


@pytest.mark.real_time
async def test_the_metrics_count_attempts_by_outcome(app):
    add = app.task(name="add")(handlers.add)
    fail = app.task(name="fail", fatal=(LookupError,))(handlers.fail)
    index = app.batch_task(name="index", size=2, linger="60s")(handlers.index)
    async with running(app, metrics="127.0.0.1:0", health="127.0.0.1:0"):
        await (await add.aput(1)).aresult(WAIT)
        await (await fail.aput("fatal")).aoutcome(WAIT)
        await app.aput_many([index.plan(1), index.plan(13)])
        status = await page_with(
            app,
            (
                'taskraft_worker_outcomes_total{outcome="acked",type="add"} 1.0',
                'taskraft_worker_outcomes_total{outcome="rejected",type="fail"} 1.0',
                'taskraft_worker_process_duration_seconds_count{type="add"} 1.0',
                f'taskraft_worker_wait_duration_seconds_count{{tube="{add.tube}",type="add"}} 1.0',
                'taskraft_worker_slots{pool="thread"} 8.0',
                'taskraft_worker_state{state="running"} 1.0',
                "taskraft_worker_reconnects_total 0.0",
                "taskraft_worker_failovers_total 0.0",
                'taskraft_worker_outcomes_total{outcome="acked",type="index"} 1.0',
                'taskraft_worker_outcomes_total{outcome="released",type="index"} 1.0',
                'taskraft_worker_threads_stuck{pool="thread"} 0.0',
            ),
        )
    assert status == 200


async def blocking(word: str) -> str:
    assert released.wait(60)
    return word


@pytest.mark.cluster
async def test_a_handler_that_blocks_the_event_loop_is_named_and_not_punished(real_app, lines):
    task = real_app.task(blocking)

    def release():
        lines.wait("has blocked the event loop")
        released.set()

    async with running(real_app):
        releasing = asyncio.create_task(asyncio.to_thread(release))
        assert await (await task.aput("done")).aresult(WAIT) == "done"
        await releasing
    (line,) = lines.find("has blocked the event loop")
    assert "assert released.wait(60)" in line.getMessage()


@pytest.mark.real_time
async def test_a_worker_waits_for_a_lost_cluster_and_says_so(tmp_path, lines, monkeypatch):
    monkeypatch.setattr(health, "DISCONNECTED_SECONDS", 0.3)
    with LocalCluster(1, tmp_path) as cluster:
        app = App("test", target=cluster.target)
        add = app.task(handlers.add)
        async with running(app, health="127.0.0.1:0"):
            await (await add.aput(1)).aresult(WAIT)
            (node,) = cluster.nodes
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(lines.wait, "no connection to the cluster for")
            assert fetch(app, "/readyz")[0] == 503
            node.start()
            await asyncio.to_thread(lines.wait, "the cluster is reachable again")
            assert await (await add.aput(2)).aresult(WAIT) == 4
    assert len(lines.find("no connection to the cluster for")) == 1


async def log_plainly(word: str) -> None:
    logging.getLogger("shop").info("plain %s", word)


async def test_each_line_inside_a_handler_has_the_fields_of_its_task(app, lines, monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    task = app.task(name="log", keep_result="1m")(log_plainly)
    async with running(app):
        handle = await task.aput("word")
        await handle.aresult(WAIT)
    (span,) = [one for one in exporter.get_finished_spans() if one.name == f"process {task.tube}"]
    assert span.attributes["messaging.taskraft.type"] == "log"
    assert span.attributes["messaging.taskraft.pool"] == "async"
    assert span.attributes["code.function.name"].endswith("test_observation.log_plainly")
    record = lines.wait("plain word")
    seen = json.loads(JsonFormatter().format(record))
    assert (seen["task"], seen["type"], seen["attempt"]) == (str(handle), "log", 1)
    assert seen["trace_id"] == f"{span.context.trace_id:032x}"
    assert seen["span_id"] == f"{span.context.span_id:016x}"


async def test_a_batch_has_one_span_with_links_to_its_puts(app, monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    task = app.batch_task(name="index", size=2, linger="60s")(handlers.index)
    async with running(app):
        for handle in [await task.aput(1), await task.aput(2)]:
            await handle.aresult(WAIT)
    (span,) = [one for one in exporter.get_finished_spans() if one.name == f"process {task.tube}"]
    assert (span.attributes["messaging.batch.message_count"], len(span.links)) == (2, 2)


@pytest.mark.parametrize("address", ["7490", "host:", "host:70000", "host:port"])
async def test_an_address_of_probes_has_host_and_port(app, address):
    app.task(handlers.add)
    with pytest.raises(ValueError, match="health must be an address"):
        await app.run(signals=False, health=address)


async def test_an_outage_is_two_lines_of_the_log(app, ataskraft, caplog):
    caplog.set_level("INFO", "taskraft")
    hang = app.task(handlers.hang)
    async with running(app, grace=0):
        await hang.aput()
        await handlers.begun.wait()  # a stream with a lease has heartbeats
        with ataskraft.unreachable():
            await pass_virtual(60)
        await pass_virtual(60)
    told = [one for one in caplog.messages if "subscri" in one]
    assert [one.partition(" at ")[0] for one in told] == ["subscription", "subscribed"], told
