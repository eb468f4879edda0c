"""Ticks come at their interval, from start to stop."""

import asyncio

import pytest

from taskraft_replication.node.ticker import Ticker
from tests.replication.node.clock import Clock


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


def test_the_first_tick_comes_after_a_part_of_the_interval(clock):
    ticks = []
    ticker = Ticker(20, lambda: ticks.append(clock.now_ms))
    ticker.start(0.25)
    clock.advance(70)
    assert ticks == [5, 25, 45, 65]


def test_a_stopped_ticker_never_ticks(clock):
    ticks = []
    ticker = Ticker(20, lambda: ticks.append(clock.now_ms))
    ticker.stop()
    ticker.start(1)
    clock.advance(39)
    ticker.stop()
    ticker.stop()
    clock.advance(100)
    assert ticks == [20]


def test_a_tick_may_stop_the_ticker(clock):
    ticks = []
    ticker = Ticker(20, lambda: (ticks.append(clock.now_ms), ticker.stop()))
    ticker.start(0)
    clock.advance(100)
    assert ticks == [1]


def test_ticking_continues_after_a_tick_that_raised(clock):
    ticks = []

    def fail() -> None:
        ticks.append(clock.now_ms)
        raise RuntimeError

    Ticker(20, fail).start(1)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            clock.advance(20)
    assert ticks == [20, 40]
