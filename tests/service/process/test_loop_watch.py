"""A blocked event loop ends the process; a paused process and a busy loop do not."""

import subprocess
import sys
import threading
import time

import pytest
import structlog

from taskraft_service.process import loop_watch
from taskraft_service.process.loop_runs import Place
from taskraft_service.process.loop_watch import HANG_CHECKS_MIN, LoopWatch

pytestmark = pytest.mark.real_time


class Bench:
    def __init__(self, hang_ms=0):
        self.ends = []
        self.cpu = 0.0
        self.watch = LoopWatch(
            hang_ms,
            self.ends.append,
            sys.stderr,
            lambda: Place("Applier.run"),
            lambda: self.cpu,
        )

    def check(self, times, cpu=0.0):
        for _ in range(times):
            self.cpu += cpu
            self.watch.check()


@pytest.fixture
async def bench():
    one = Bench()
    one.watch.note_life()
    yield one
    one.watch.stop()


async def test_a_loop_that_hangs_ends_the_process_once(bench):
    bench.check(HANG_CHECKS_MIN)
    assert bench.ends == [], "the loop was active before the first check"
    bench.check(5)
    (text,) = bench.ends
    assert text.startswith("the event loop has been blocked for 10 s in Applier.run")


async def test_a_loop_that_uses_cpu_time_never_ends_the_process(bench):
    with structlog.testing.capture_logs() as lines:
        bench.check(100, cpu=0.02)
    assert bench.ends == []
    assert lines[0]["place"] == "Applier.run"
    assert lines[0]["log_level"] == "error"
    bench.check(HANG_CHECKS_MIN, cpu=0.001)
    assert len(bench.ends) == 1, "the loop blocked after its work"


async def test_each_sign_of_life_restarts_the_time_limit(bench):
    for _ in range(3):
        bench.check(HANG_CHECKS_MIN)
        bench.watch.note_life()
    assert bench.ends == []


async def test_a_longer_hang_than_the_minimum_is_allowed():
    bench = Bench(hang_ms=30_000)
    bench.check(29)
    assert bench.ends == []
    bench.check(1)
    assert "30 s" in bench.ends[0]


def test_the_cpu_clock_counts_the_work_of_the_thread_that_asked_for_it(monkeypatch):
    def work():
        return sum(range(200_000))

    clock = loop_watch.cpu_clock_of_this_thread()
    before = clock()
    other = threading.Thread(target=work)
    other.start()
    other.join()
    of_others = clock() - before
    work()
    assert clock() - before > 2 * of_others, "the other thread worked as much"
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    assert loop_watch.cpu_clock_of_this_thread() is time.process_time


HUNG = """
import asyncio, ctypes, sys, threading, time
from functools import partial
from taskraft_service.process import loop_watch
from taskraft_service.process.loop_runs import LoopRuns

loop_watch.CHECK_SECONDS = 0.05

def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

async def main():
    runs = LoopRuns()
    runs.watch()
    watch = loop_watch.LoopWatch(
        0,
        partial(loop_watch.end_process, sys.stderr, 70),
        sys.stderr,
        runs.running,
        loop_watch.cpu_clock_of_this_thread(),
    )
    watch.start()
    await asyncio.sleep(0)
    HANG

asyncio.run(main())
"""


def run_hung(call):
    """Run a process whose event loop hangs in a call."""
    code = HUNG.replace("HANG", call)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_process_whose_loop_holds_the_interpreter_lock_exits_and_shows_its_stacks():
    """RocksDB's library holds the lock while it reads one key, so no thread of Python runs."""
    done = run_hung("ctypes.PyDLL(None).sleep(60)")
    assert done.returncode == 1
    assert "most recent call first" in done.stderr


def test_a_process_whose_loop_hangs_exits_with_status_70_and_shows_its_stacks():
    done = run_hung("threading.Event().wait()")
    assert done.returncode == 70
    assert "the event loop has been blocked for 0.5 s in main" in done.stderr
    assert "most recent call first" in done.stderr


def test_a_process_whose_loop_works_for_longer_than_the_limit_goes_on():
    done = run_hung("work(1.5); watch.stop()")
    assert done.returncode == 0, done.stderr
    assert "the event loop is busy with one callback" in done.stdout
