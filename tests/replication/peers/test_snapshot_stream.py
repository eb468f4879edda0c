"""A broken transfer is continued while it makes progress, and for a limited time without."""

from collections import deque

import pytest

from taskraft_replication.errors import SnapshotBroken
from taskraft_replication.peers import snapshot_stream
from taskraft_replication.peers.snapshot_stream import ATTEMPTS_MAX, PAUSE_SECONDS, SnapshotTransfer
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb


class Attempts(SnapshotTransfer):
    """Breaks off after the given offsets, one per attempt; then the transfer succeeds."""

    def __init__(self, *places, error=TimeoutError):
        super().__init__(None, pb.SnapshotHeader(), None)
        self.places = deque(places)
        self.error = error

    async def _attempt(self):
        if self.places:
            self._reached = self.places.popleft()
            raise self.error


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, in seconds; they take no time."""
    taken = []

    async def pause(seconds):
        taken.append(seconds)

    monkeypatch.setattr(snapshot_stream.asyncio, "sleep", pause)
    return taken


async def test_pauses_grow_until_a_transfer_makes_progress(pauses):
    await Attempts(0, 0, 5, 5, 9).run()
    assert pauses == [PAUSE_SECONDS * each for each in (1, 2, 0, 1, 0)]


async def test_a_transfer_without_progress_is_given_up(pauses):
    transfer = Attempts(5, *[5] * ATTEMPTS_MAX, 9)
    with pytest.raises(TimeoutError):
        await transfer.run()
    assert list(transfer.places) == [9]
    assert len(pauses) == ATTEMPTS_MAX


async def test_a_broken_snapshot_is_not_retried(pauses):
    with pytest.raises(SnapshotBroken):
        await Attempts(5, error=SnapshotBroken("no")).run()
    assert pauses == []


async def test_of_equal_reasons_the_log_has_the_first_and_a_count(pauses, caplog):
    caplog.set_level("INFO")
    await Attempts(5, 5, 5, 5, 9).run()
    assert caplog.messages == [
        "snapshot transfer broke at byte 5 and is continued: TimeoutError",
        "snapshot transfer broke at byte 5 3 more times: TimeoutError",
        "snapshot transfer broke at byte 9 and is continued: TimeoutError",
    ]


async def test_the_count_of_a_transfer_that_is_given_up_is_logged(pauses, caplog):
    caplog.set_level("INFO")
    with pytest.raises(TimeoutError):
        await Attempts(*[0] * ATTEMPTS_MAX).run()
    assert caplog.messages == [
        "snapshot transfer broke at byte 0 and is continued: TimeoutError",
        f"snapshot transfer broke at byte 0 {ATTEMPTS_MAX - 2} more times: TimeoutError",
    ]
