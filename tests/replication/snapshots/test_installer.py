"""A snapshot replaces state and log in an order that survives a crash at any point."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import (
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.snapshots.installer import SnapshotInstaller

META = SnapshotMeta(LogIndex(100), Term(5), ConfState(voters=(MemberId(1),)))
ANNOUNCED = Message(MessageKind.STORAGE_APPEND, snapshot=Snapshot(META, b"content"))
HARD_STATE = HardState(Term(5), MemberId(0), LogIndex(100))

DURABLE_STEPS = [("noted", META, HARD_STATE), "switched", ("log replaced", META)]
STEPS_IN_USE = ["in use", ("shown", META), "replies released", ("reported", META)]
CLEANING = ["old state removed", "content removed", "room for the next", "pump"]


class Surroundings:
    """Replaces the parts around the installer, and records the order of their calls.

    The state is at index 10.
    """

    def __init__(self) -> None:
        self.done: list[object] = []
        note = self.done.append
        self.machine = SimpleNamespace(applied_index=LogIndex(10))
        storage = SimpleNamespace(
            begin_installation=lambda meta, hard_state=None: note(("noted", meta, hard_state)),
            finish_installation=lambda meta: note(("log replaced", meta)),
            publish_installation=lambda meta: note(("shown", meta)),
        )
        inbox = SimpleNamespace(
            remove=lambda _: note("content removed"), forget=lambda _: note("room for the next")
        )
        writer = SimpleNamespace(
            begin_snapshot=lambda: HARD_STATE, end_snapshot=lambda _: note("replies released")
        )
        self.work: list[tuple] = []
        effects = SimpleNamespace(
            store=lambda work, then: self.work.append((work, then)),
            flush=lambda work, then: then(work()),
            request_pump=lambda: note("pump"),
        )
        listener = SimpleNamespace(installed=lambda meta: note(("reported", meta)))
        self.staged = SimpleNamespace(
            switch=lambda: note("switched"),
            adopt=self._adopt,
            discard=lambda: note("old state removed"),
        )
        self.installer = SnapshotInstaller(self.machine, storage, inbox, writer, effects, listener)

    def _adopt(self) -> None:
        self.machine.applied_index = META.index
        self.done.append("in use")


def test_each_step_is_taken_when_a_crash_after_it_can_be_repaired():
    """The note about the installation is stored first, and the log is changed last."""
    around = Surroundings()
    around.installer.stage("content", around.staged)
    around.installer.begin(ANNOUNCED)
    assert around.installer.current == "content"
    assert around.done == [], "nothing is done on the event loop"
    ((work, then),) = around.work
    result = work()
    assert around.done == DURABLE_STEPS
    assert around.machine.applied_index == 10, "the old state still serves"
    then(result)
    assert around.done == [*DURABLE_STEPS, *STEPS_IN_USE, *CLEANING]
    assert around.installer.current is None
    around.installer.stage("next", around.staged)


def test_an_unwanted_state_is_removed_with_its_content():
    around = Surroundings()
    around.installer.stage("content", around.staged)
    around.installer.unstage("content")
    assert around.done == ["old state removed", "content removed", "room for the next"]
    around.installer.stage("next", around.staged)


def test_a_second_state_is_not_staged_beside_the_first():
    around = Surroundings()
    around.installer.stage("content", around.staged)
    with pytest.raises(AssertionError, match="one snapshot at a time"):
        around.installer.stage("next", around.staged)


@pytest.mark.parametrize("applied", [100, 101])
def test_a_snapshot_below_the_applied_index_is_never_installed(applied):
    around = Surroundings()
    around.machine.applied_index = LogIndex(applied)
    around.installer.stage("content", around.staged)
    with pytest.raises(AssertionError, match="above the applied index"):
        around.installer.begin(ANNOUNCED)
