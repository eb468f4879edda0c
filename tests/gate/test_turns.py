"""A wait for a condition leaves the core to other processes, but uses no timer in stage 1."""

from types import SimpleNamespace

import pytest

from tests import turns
from tests.turns import PAUSE_SECONDS, TURNS_MIN, blocked_until, turns_until

LOOKS = TURNS_MIN + 3


@pytest.fixture
def pauses(monkeypatch):
    """Return the pauses, in seconds, between the looks at a condition; no pause takes time."""
    taken = []

    async def pause(seconds):
        taken.append(seconds)

    monkeypatch.setattr(turns, "time", SimpleNamespace(sleep=taken.append, monotonic=lambda: 0.0))
    asynchronous = SimpleNamespace(sleep=pause, timeout=turns.asyncio.timeout)
    monkeypatch.setattr(turns, "asyncio", asynchronous)
    return taken


def test_a_blocked_thread_pauses_between_two_looks(pauses):
    blocked_until(lambda: len(pauses) == LOOKS)
    assert pauses == [PAUSE_SECONDS] * LOOKS


async def test_an_event_loop_pauses_after_its_first_turns(pauses, monkeypatch):
    monkeypatch.setattr(turns, "GUARD", SimpleNamespace(is_watching=False))
    await turns_until(lambda: len(pauses) == LOOKS)
    assert pauses == [0] * TURNS_MIN + [PAUSE_SECONDS] * (LOOKS - TURNS_MIN)


async def test_an_event_loop_of_stage_1_never_pauses(pauses):
    await turns_until(lambda: len(pauses) == LOOKS)
    assert pauses == [0] * LOOKS
