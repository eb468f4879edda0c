"""A snapshot that arrives is built beside the state, unless nobody needs it any more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from replication.core.types import (
    ConfState,
    LogIndex,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from replication.snapshots.intake import SnapshotIntake


class Surroundings:
    """Everything around the intake, noting what is done; the log is committed up to 10."""

    def __init__(self, *, is_wanted: bool = True) -> None:
        self.done: list[str] = []
        note = self.done.append
        self.incoming = SimpleNamespace(
            name="s", close=lambda: note("closed"), seal=lambda: note("sealed")
        )
        core = SimpleNamespace(commit_index=LogIndex(10), step=lambda _: note("told the core"))
        machine = SimpleNamespace(stage_snapshot=lambda index, _: note(f"built {index}"))
        inbox = SimpleNamespace(discard=lambda _: note("discarded"), chunks=lambda _: ())
        writer = SimpleNamespace(holds_snapshot=lambda _: is_wanted)
        installer = SimpleNamespace(
            current=None,
            stage=lambda *_: note("staged"),
            unstage=lambda _: note("unstaged"),
        )
        effects = SimpleNamespace(flush=lambda work, then: then(work()))
        self.intake = SnapshotIntake(core, machine, inbox, writer, installer, effects)

    def receive(self, index: int) -> list[str]:
        meta = SnapshotMeta(LogIndex(index), Term(1), ConfState())
        message = Message(MessageKind.SNAPSHOT, snapshot=Snapshot(meta, b"s"))
        note = self.done.append
        self.intake.received(message, self.incoming, lambda: note("done"), lambda: note("pumped"))
        return self.done


BUILT = ["sealed", "built 11", "staged", "told the core", "pumped"]


@pytest.mark.parametrize("index", [9, 10])
def test_a_snapshot_of_what_is_committed_here_is_not_built(index):
    assert Surroundings().receive(index) == ["closed", "discarded", "done"]


def test_a_newer_one_is_built_before_the_core_is_told():
    assert Surroundings().receive(11) == [*BUILT, "done"]


def test_what_the_core_does_not_want_is_removed():
    assert Surroundings(is_wanted=False).receive(11) == [*BUILT, "unstaged", "done"]
