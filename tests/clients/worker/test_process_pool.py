"""Handlers run in processes of the pool, and one that dies fails its own task only."""

import logging
import os
import sys
import uuid

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from taskraft.worker import App, InvalidTask, ResultNotKept
from taskraft.worker.child_process import reference_of
from taskraft.worker.clients import AppClients
from taskraft.worker.life_cycle import ExitReason
from tests.clients.worker import handlers, process_tasks
from tests.clients.worker.handlers import running
from tests.clients.worker.test_worker import WAIT, when


def with_tube(monkeypatch, target, tube):
    """Return the app of the processes, on a tube of its own."""
    found = process_tasks.app
    monkeypatch.setattr(found, "clients", AppClients(target, {}))
    monkeypatch.setenv(process_tasks.TUBE, tube)
    for task in found.tasks.values():
        monkeypatch.setattr(task, "tube", tube)
    return found


@pytest.fixture
def app(ataskraft, monkeypatch):
    """Return the app on a cluster in memory, whose clock stands still while a process works."""
    return with_tube(monkeypatch, None, "worker")


@pytest.fixture
def real_app(node, monkeypatch):
    """Return the app on a real node, for handlers that hang until a time limit."""
    return with_tube(monkeypatch, node.target, f"worker-{uuid.uuid4()}")


async def begun(handle):
    """Wait until a handler has reported its progress."""
    (seen,) = await handle._clients.here().tube(handle.tube).wait(handle.id, progress=True)
    assert (seen.message.progress.basis_points, seen.message.progress.note) == (5_000, "half")


async def test_a_process_runs_handlers_with_dependencies_and_the_lifespan(app):
    async with running(app, processes=1):
        word, link, pid, is_main = await (await process_tasks.where.aput("a")).aresult(WAIT)
        assert (word, link, is_main) == ("a", "link 1", "True")
        again = await (await process_tasks.where.aput("b")).aresult(WAIT)
        assert again[2] == pid != str(os.getpid())


async def test_a_process_is_replaced_after_its_maximum_of_tasks(app):
    async with running(app, processes=1, max_tasks=1):
        pids = [(await (await process_tasks.where.aput("a")).aresult(WAIT))[2] for _ in range(2)]
        assert len(set(pids)) == 2


async def test_a_line_in_a_process_has_the_fields_of_its_task(app, caplog, monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with running(app, processes=1):
        handles = [await process_tasks.log_lines.aput(word) for word in ("a", "b")]
        for handle in handles:
            await handle.aresult(WAIT)
    found = {}
    for record in caplog.records:
        if record.levelname == "WARNING":
            found.setdefault(record.task, []).append(record)
    assert set(found) == {str(handle) for handle in handles}
    spans = [one for one in exporter.get_finished_spans() if one.name == "process worker"]
    traces = {(f"{one.context.trace_id:032x}", f"{one.context.span_id:016x}") for one in spans}
    seen = set()
    for handle, word in zip(handles, ("a", "b"), strict=True):
        lines = found[str(handle)]
        told = ["opened", f"said {word}", f"{handle}: said by the context"]
        assert [line.getMessage() for line in lines] == told
        kind = process_tasks.log_lines.name
        assert {(line.type, line.attempt, line.tube) for line in lines} == {(kind, 1, "worker")}
        assert len({line.token for line in lines}) == 1
        seen |= {(line.trace_id, line.span_id) for line in lines}
    assert seen == traces
    assert len(seen) == 2


async def test_a_line_with_fields_that_cannot_be_sent_loses_no_result(app, caplog):
    async with running(app, processes=1):
        for word in ("a", "b"):
            assert await (await process_tasks.log_odd_fields.aput(word)).aresult(WAIT) == word
    found = [one for one in caplog.records if one.levelname == "WARNING"]
    told = ["line 0", "line 1", "cannot read a log record of a process of the pool", "line 3"]
    assert [one.getMessage().partition(":")[0] for one in found] == told * 2
    assert "<unlocked _thread.lock" in found[0].odd
    assert (found[1].odd, found[3].odd) == ("for 0", [1])


async def test_a_process_whose_answer_was_not_read_runs_no_other_task(app, caplog):
    """Otherwise, each later task would get the result of the task before."""

    class Broken(logging.Handler):
        def emit(self, record):
            if record.getMessage() == "said a":
                raise ValueError("broken handler")

    broken = Broken()
    logging.getLogger().addHandler(broken)
    try:
        async with running(app, processes=1):
            failed = await process_tasks.log_lines.aput("a")
            status = await when(failed, lambda found: found.state == "DELAYED")
            assert status.failure == "ValueError: broken handler"
            for word in ("b", "c"):
                assert await (await process_tasks.log_lines.aput(word)).aresult(WAIT) == word
    finally:
        logging.getLogger().removeHandler(broken)


@pytest.mark.parametrize(
    ("kind", "state", "failure"),
    [
        ("fatal", "BURIED", "KeyError: 'gone'"),
        ("fatal, unpicklable", "BURIED", "Unpicklable: a b"),
        ("retry", "DELAYED", "RetryTask: not yet"),
        ("broken", "DELAYED", "ValueError: broken"),
        ("killed", "DELAYED", "WorkerLost: the process of the handler ended by SIGKILL"),
        ("exit", "DELAYED", "WorkerLost: the process of the handler ended with status 3"),
        ("result", "BURIED", "InvalidResult: the result of"),
    ],
)
async def test_a_failure_in_a_process_settles_its_task_only(app, kind, state, failure, tmp_path):
    async with running(app, processes=2, grace=0):
        other = await process_tasks.hang.aput(str(tmp_path / "other"))
        await begun(other)
        handle = await process_tasks.fail.aput(kind)
        found = await when(handle, lambda task: task.state == state)
        assert found.failure.startswith(failure)
        assert (await other.astatus()).state == "TAKEN"
        assert (await (await process_tasks.where.aput("a")).aresult(WAIT))[0] == "a"


@pytest.mark.cluster
@pytest.mark.parametrize("is_deaf", [False, True])
async def test_the_time_limit_ends_the_process(real_app, tmp_path, monkeypatch, is_deaf):
    monkeypatch.setattr(process_tasks.hang, "time_limit", 1.0)
    path = tmp_path / "cleaned"
    async with running(real_app, processes=1, cancel_grace="1s"):
        handle = await process_tasks.hang.aput(str(path), is_deaf=is_deaf)
        found = await when(handle, lambda task: task.state == "DELAYED")
        assert found.failure == "TimeLimitExceeded: the time limit of 1 s is over"
        assert path.read_text() == "cleaned up"


@pytest.mark.cluster
async def test_a_handler_in_a_process_is_handed_back_uncounted_after_the_grace(real_app, tmp_path):
    async with running(real_app, processes=1, grace="10ms") as worker:
        handle = await process_tasks.hang.aput(str(tmp_path / "cleaned"))
        await begun(handle)
        real_app.stop()
        assert await worker is ExitReason.GRACE_OVER
    async with real_app:
        found = await handle.astatus()
    assert (found.state, found.attempt) == ("READY", 0)
    assert (tmp_path / "cleaned").read_text() == "cleaned up"


@pytest.mark.cluster
async def test_a_cancelled_task_ends_its_process(real_app, tmp_path):
    async with running(real_app, processes=1, cancel_grace="1s"):
        handle = await process_tasks.hang.aput(str(tmp_path / "cleaned"))
        await begun(handle)
        await handle.acancel()
        assert (await (await process_tasks.where.aput("a")).aresult(WAIT))[0] == "a"
    assert (tmp_path / "cleaned").read_text() == "cleaned up"


@pytest.mark.cluster
async def test_a_task_without_a_slot_stays_ready_while_the_only_process_is_busy(
    real_app, monkeypatch, tmp_path
):
    monkeypatch.setattr(process_tasks.where, "concurrency", 1)  # a subscription of its own
    async with running(real_app, processes=1, grace=0):
        await begun(await process_tasks.hang.aput(str(tmp_path / "hang")))
        handle = await process_tasks.where.aput("a")
        tube = real_app.clients.here().tube(handle.tube)
        async with await tube.take(wait=WAIT) as taken:
            assert (taken.id, taken.attempt) == (handle.id, 1)


async def test_a_process_puts_tasks_with_the_acknowledgement(app):
    async with running(app, processes=1):
        handle = await process_tasks.follow.aput()
        later = process_tasks.where.handle(handle.id + 1)
        found = await when(later, lambda task: task.state == "DELAYED")
        assert found.json() == {"word": "later"}
        with pytest.raises(ResultNotKept):  # acknowledged by the same command
            await handle.aresult(WAIT)


async def test_an_app_that_a_process_cannot_import_is_refused_at_the_start():
    other = App("other")
    other.task(pool="process")(handlers.subtract)
    with pytest.raises(InvalidTask, match="the app other is no global"):
        await other.run(signals=False)


def test_processes_import_the_module_of_an_app_and_not_the_main_module(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "imported", process_tasks.app, raising=False)
    assert reference_of(process_tasks.app) == ("tests.clients.worker.process_tasks", "app")
