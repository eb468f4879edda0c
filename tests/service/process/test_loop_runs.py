"""Runs of the event loop are counted by CPU time and named."""

import asyncio
import gc

import pytest
import structlog
from prometheus_client import CollectorRegistry

from taskraft_service.api.rpc.endpoint import running_method
from taskraft_service.process import loop_runs
from taskraft_service.process.loop_runs import OTHER_PLACES, LoopRuns, Place
from taskraft_service.process.metrics.loop import LoopCollector


class Clocks:
    """The two clocks of a loop; work moves both, waiting only the real one."""

    def __init__(self):
        self.cpu = self.real = 0.0

    def work(self, seconds):
        self.cpu += seconds
        self.real += seconds


@pytest.fixture
async def clocks():
    return Clocks()


@pytest.fixture
async def runs(clocks):
    counted = LoopRuns(lambda: clocks.cpu, lambda: clocks.real)
    stop = counted.watch()
    yield counted
    stop()


async def test_long_runs_are_counted_by_the_coroutine_and_its_method(clocks, runs):
    async def serve(seconds):
        running_method.set("ListTubes")
        await asyncio.sleep(0)
        clocks.work(seconds)

    for seconds in (0.009, 0.011, 0.2):
        await asyncio.create_task(serve(seconds))
    (place,) = runs.long
    assert place.name.endswith("serve")
    assert place.method == "ListTubes"
    assert (runs.long[place], runs.very_long[place]) == (2, 1)
    assert runs.longest_seconds == pytest.approx(0.2)


async def test_a_callback_is_named_by_its_function(clocks, runs):
    asyncio.get_running_loop().call_soon(clocks.work, 0.05)
    await asyncio.sleep(0)
    assert runs.long == {Place("Clocks.work"): 1}


async def test_waiting_and_the_runs_before_do_not_count(clocks, runs):
    for _ in range(100):
        clocks.work(0.0009)
        await asyncio.sleep(0)
    clocks.real += 10
    await asyncio.sleep(0)
    assert runs.long == {}


async def test_the_collection_of_garbage_does_not_count(clocks, runs):
    def collect(phase, _info):
        if phase == "start":
            clocks.work(0.5)

    gc.callbacks.append(collect)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collect)
    clocks.work(0.002)
    await asyncio.sleep(0)
    assert runs.long == {}


async def test_a_very_long_run_is_logged_at_most_once_a_second(clocks, runs):
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            clocks.work(0.3)
            await asyncio.sleep(0)
    assert [line["cpu_ms"] for line in lines] == [300]
    assert "place" in lines[0]


async def test_the_number_of_places_is_limited(clocks, runs, monkeypatch):
    monkeypatch.setattr(loop_runs, "PLACES_MAX", 1)
    asyncio.get_running_loop().call_soon(clocks.work, 0.05)
    await asyncio.sleep(0)
    clocks.work(0.05)
    await asyncio.sleep(0)
    assert runs.long == {Place("Clocks.work"): 1, OTHER_PLACES: 1}


async def test_the_metrics_show_the_runs(clocks, runs):
    registry = CollectorRegistry()
    registry.register(LoopCollector(runs))
    asyncio.get_running_loop().call_soon(clocks.work, 0.15)
    await asyncio.sleep(0)
    for over in ("10ms", "100ms"):
        labels = {"over": over, "place": "Clocks.work", "method": ""}
        assert registry.get_sample_value("taskraft_loop_long_runs_total", labels) == 1
    assert registry.get_sample_value("taskraft_loop_longest_run_seconds") == pytest.approx(0.15)


async def test_the_end_of_the_watch_restores_the_event_loop(clocks):
    before = asyncio.Handle._run
    LoopRuns(lambda: clocks.cpu, lambda: clocks.real).watch()()
    assert asyncio.Handle._run is before
