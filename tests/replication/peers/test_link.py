"""Reconnection attempts to an unreachable peer back off."""

import asyncio
from types import SimpleNamespace

from taskraft_replication.core.types import MemberId
from taskraft_replication.peers import link
from taskraft_replication.peers.link import BACK_OFF_MAX_MS, BACK_OFF_MIN_MS, PeerLink

ATTEMPTS = 7


class Channel:
    """A channel on which every call fails."""

    def stream_stream(self, *_, **__):
        return self.call

    stream_unary = unary_unary = stream_stream

    def call(self):
        raise OSError("nobody is there")

    async def close(self):
        pass


class Timeouts:
    """Replaces ``asyncio.timeout``; each timeout expires at once and is recorded."""

    def __init__(self):
        self.seconds = []
        self.enough = asyncio.Event()

    def timeout(self, seconds):
        self.seconds.append(seconds)
        if len(self.seconds) == ATTEMPTS:
            self.enough.set()
        return self

    async def __aenter__(self):
        await asyncio.sleep(0)
        raise TimeoutError

    async def __aexit__(self, *_):
        pass


async def test_pauses_between_attempts_double_up_to_a_limit(monkeypatch):
    timeouts = Timeouts()
    monkeypatch.setattr(link.asyncio, "timeout", timeouts.timeout)
    told = []
    events = SimpleNamespace(unreachable=told.append)
    one = PeerLink(MemberId(2), Channel(), None, None, events)
    await timeouts.enough.wait()
    await one.close()
    expected = [BACK_OFF_MIN_MS * 2**number for number in range(ATTEMPTS)]
    assert timeouts.seconds == [min(each, BACK_OFF_MAX_MS) / 1000 for each in expected]
    assert told == [2] * ATTEMPTS
