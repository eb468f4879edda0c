"""The state of an incoming snapshot is built in the background, unless it is outdated."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import SnapshotBroken
from taskraft_replication.snapshots.receiver import SnapshotReceiver


class Surroundings:
    """Replaces the parts around the receiver, and records their calls.

    The log is committed up to index 10.
    """

    def __init__(self, *, is_wanted: bool = True, failure: Exception | None = None) -> None:
        self.done: list[str] = []
        note = self.done.append
        self.incoming = SimpleNamespace(
            name="s", close=lambda: note("closed"), seal=lambda: note("sealed")
        )
        core = SimpleNamespace(commit_index=LogIndex(10), step=lambda _: note("reported the core"))

        def build(index: int, _chunks: object) -> None:
            note(f"built {index}")
            if failure is not None:
                raise failure

        machine = SimpleNamespace(stage_snapshot=build)
        inbox = SimpleNamespace(
            discard=lambda _: note("discarded"),
            chunks=lambda _: (),
            remove=lambda _: note("removed"),
            forget=lambda _: note("forgotten"),
        )
        writer = SimpleNamespace(holds_snapshot=lambda _: is_wanted)
        installer = SimpleNamespace(
            current=None,
            stage=lambda *_: note("staged"),
            unstage=lambda _: note("unstaged"),
        )
        effects = SimpleNamespace(flush=lambda work, then: then(work()))
        self.intake = SnapshotReceiver(core, machine, inbox, writer, installer, effects)

    def receive(self, index: int) -> list[str]:
        meta = SnapshotMeta(LogIndex(index), Term(1), ConfState())
        message = Message(MessageKind.SNAPSHOT, snapshot=Snapshot(meta, b"s"))
        note = self.done.append
        self.intake.received(
            message, self.incoming, lambda error: note(f"done: {error}"), lambda: note("pumped")
        )
        return self.done


BUILT = ["sealed", "built 11", "staged", "reported the core", "pumped"]


@pytest.mark.parametrize("index", [9, 10])
def test_no_state_is_built_from_a_snapshot_below_the_commit_index(index):
    assert Surroundings().receive(index) == ["closed", "discarded", "done: None"]


def test_a_newer_state_is_built_before_the_core_gets_the_snapshot():
    assert Surroundings().receive(11) == [*BUILT, "done: None"]


def test_a_state_that_the_core_refuses_is_removed():
    assert Surroundings(is_wanted=False).receive(11) == [*BUILT, "unstaged", "done: None"]


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (SnapshotBroken("it is cut off"), "it is cut off"),
        (
            OSError(errno.ENOSPC, "No space left"),
            "the disk is full: [Errno 28] No space left",
        ),
    ],
)
def test_an_unusable_snapshot_is_removed_and_reported_to_the_sender(failure, reported):
    done = Surroundings(failure=failure).receive(11)
    assert done == ["sealed", "built 11", "removed", "forgotten", f"done: {reported}"]


def test_a_failed_disk_stops_the_node_and_does_not_blame_the_snapshot():
    with pytest.raises(OSError, match="Input/output"):
        Surroundings(failure=OSError(errno.EIO, "Input/output error")).receive(11)
