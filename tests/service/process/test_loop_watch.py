"""A hung event loop ends the process, a paused process and a slow loop do not."""

import subprocess
import sys

import pytest

from taskraft_service.process.loop_watch import HANG_CHECKS_MIN, LoopWatch

pytestmark = pytest.mark.real_time


class Bench:
    def __init__(self, hang_ms=0):
        self.ends = []
        self.watch = LoopWatch(hang_ms, self.ends.append, sys.stderr)

    def check(self, times):
        for _ in range(times):
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
    assert text.startswith("the event loop has not run for 10 s")


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


HUNG = """
import asyncio, ctypes, sys, threading
from functools import partial
from taskraft_service.process import loop_watch

loop_watch.CHECK_SECONDS = 0.01

async def main():
    watch = loop_watch.LoopWatch(0, partial(loop_watch.end_process, sys.stderr, 70), sys.stderr)
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
    assert "the event loop has not run for" in done.stderr
    assert "most recent call first" in done.stderr
