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
    """Everything around the intake, noting what is done; the log is committed up to 10."""

    def __init__(self, *, is_wanted: bool = True, failure: Exception | None = None) -> None:
        self.done: list[str] = []
        note = self.done.append
        self.incoming = SimpleNamespace(
            name="s", close=lambda: note("closed"), seal=lambda: note("sealed")
        )
        core = SimpleNamespace(commit_index=LogIndex(10), step=lambda _: note("told the core"))

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


BUILT = ["sealed", "built 11", "staged", "told the core", "pumped"]


@pytest.mark.parametrize("index", [9, 10])
def test_a_snapshot_of_what_is_committed_here_is_not_built(index):
    assert Surroundings().receive(index) == ["closed", "discarded", "done: None"]


def test_a_newer_one_is_built_before_the_core_is_told():
    assert Surroundings().receive(11) == [*BUILT, "done: None"]


def test_what_the_core_does_not_want_is_removed():
    assert Surroundings(is_wanted=False).receive(11) == [*BUILT, "unstaged", "done: None"]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (SnapshotBroken("it is cut off"), "it is cut off"),
        (
            OSError(errno.ENOSPC, "No space left"),
            "the disk is full: [Errno 28] No space left",
        ),
    ],
)
def test_one_of_which_no_state_can_be_made_is_removed_and_the_sender_told(failure, told):
    done = Surroundings(failure=failure).receive(11)
    assert done == ["sealed", "built 11", "removed", "forgotten", f"done: {told}"]


def test_a_broken_disk_is_no_matter_of_the_snapshot():
    with pytest.raises(OSError, match="Input/output"):
        Surroundings(failure=OSError(errno.EIO, "Input/output error")).receive(11)
