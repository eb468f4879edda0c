"""Changes are written in batches: early if they are many, and later if the store would block."""

import pytest

from taskraft_replication.core.types import Entry, EntryKind, LogIndex, Term
from taskraft_service.machine import open_database, write_behind
from taskraft_service.machine.collect_policy import BACKLOG_ENTRIES
from taskraft_service.queue.persistence import task_writes
from taskraft_service.storage.rocks import RocksStore
from tests.service.machine.test_state_machine import Clock, machine_in, puts, story


@pytest.fixture
def small_steps(monkeypatch):
    """Collect the changes of ten tasks in one step."""
    monkeypatch.setattr(task_writes, "STEP_TASKS", 10)
    monkeypatch.setattr(open_database, "STEP_TASKS", 10)


@pytest.mark.parametrize("limits", [{"tasks": 100}, {"tasks": 400, "fresh": 100}])
def test_many_changes_or_new_tasks_are_collected_early(tmp_path, limits):
    machine = machine_in(tmp_path / "state", entries=1_000, **limits)
    machine.apply(story())
    machine.collect()
    machine.apply(puts(7, 8, 40))
    assert machine.snapshot_index == 6
    machine.apply(puts(9, 9, 40))
    assert machine.snapshot_index == 9
    machine.abandon()


def test_large_entries_are_collected_early(tmp_path):
    size = len(puts(7, 7, 1)[0].data)
    machine = machine_in(tmp_path / "state", entries=1_000, content_bytes=2 * size)
    machine.apply(story())
    machine.collect()
    machine.apply(puts(7, 7, 1))
    assert machine.snapshot_index == 6
    machine.apply(puts(8, 8, 1))
    assert machine.snapshot_index == 8
    machine.abandon()


def test_the_number_of_new_tasks_does_not_bound_a_backlog(tmp_path):
    machine = machine_in(tmp_path / "state", entries=1_000, fresh=100)
    machine.apply(story())
    machine.collect()
    machine.apply(puts(7, 6 + BACKLOG_ENTRIES, 9))
    assert machine.snapshot_index == 6, "nobody waits for a backlog"
    machine.abandon()


def test_a_backlog_is_collected_in_batches_that_only_tasks_and_time_bound(tmp_path):
    clock = Clock()
    machine = machine_in(tmp_path / "state", clock, entries=10, tasks=100)
    machine.apply(story())
    machine.collect()
    last = 6 + BACKLOG_ENTRIES
    machine.apply(puts(7, last, 1))
    assert machine.snapshot_index == 6
    machine.apply(puts(last + 1, last + 1, 1))
    assert machine.snapshot_index == last + 1, "no further entries wait"
    machine.apply(puts(last + 2, last + 1 + BACKLOG_ENTRIES, 4))
    assert machine.snapshot_index == last + 1 + BACKLOG_ENTRIES, "too many changed tasks"
    clock.time_ms = 1_000
    machine.apply(puts(last + 2 + BACKLOG_ENTRIES, last + 1 + 2 * BACKLOG_ENTRIES, 1))
    assert machine.snapshot_index == last + 1 + 2 * BACKLOG_ENTRIES, "too long ago"
    machine.abandon()


def test_a_batch_is_postponed_while_the_store_would_block(tmp_path):
    choked = True

    class Choked(RocksStore):
        @property
        def is_choked(self):
            return choked

    machine = machine_in(tmp_path / "state", entries=1_000, tasks=10, store=Choked)
    machine.apply(story())
    machine.collect()
    machine.apply(puts(7, 7, 100))
    assert machine.snapshot_index == 6
    following = puts(8, 8, 60)
    assert not machine.waits_for_disk(following[0])
    machine.apply(following)
    assert machine.snapshot_index == 6
    assert machine.waits_for_disk(puts(9, 9, 1)[0]), "memory is bounded"
    choked = False
    assert not machine.waits_for_disk(puts(9, 9, 1)[0])
    machine.apply(puts(9, 9, 1))
    assert machine.snapshot_index == 9
    choked = True
    assert not machine.waits_for_disk(puts(10, 10, 1)[0])
    assert machine.waits_for_disk(Entry(Term(1), LogIndex(10), b"", EntryKind.CONF_CHANGE_V2)), (
        "a membership change is written at once"
    )
    machine.close()


def test_large_changes_wait_for_a_store_that_would_block(tmp_path, monkeypatch):
    monkeypatch.setattr(write_behind, "POSTPONED_BYTES_MAX", 2_000)

    class Choked(RocksStore):
        is_choked = True

    machine = machine_in(tmp_path / "state", entries=1, tasks=1_000, store=Choked)
    machine.apply(story())
    machine.collect()
    machine.apply(puts(7, 7, 100))
    assert not machine.waits_for_disk(puts(8, 8, 1)[0])
    machine.apply(puts(8, 15, 100))
    assert machine.waits_for_disk(puts(16, 16, 1)[0])
    assert machine.snapshot_index == 6
    machine.abandon()


@pytest.mark.usefixtures("small_steps")
def test_a_large_batch_is_written_in_steps_and_as_a_whole(tmp_path):
    machine = machine_in(tmp_path / "state", entries=1_000, tasks=35)
    machine.apply(story())
    machine.collect()
    before = dict(machine._state.store.view().scan(b""))
    tasks = len(machine.queue.list_tasks("t", (), 0, 100)) + 40
    machine.apply(puts(7, 7, 40))
    steps = 0
    while machine.is_writing:
        assert dict(machine._state.store.view().scan(b"")) == before
        assert len(machine.queue.list_tasks("t", (), 0, 100)) == tasks, "reads see all tasks"
        assert machine.snapshot_index == 6
        machine.write_some()
        steps += 1
    assert steps == 4
    assert machine.snapshot_index == 7
    machine.close()
    again = machine_in(tmp_path / "state")
    assert len(again.queue.list_tasks("t", (), 0, 100)) == tasks
    again.close()


@pytest.mark.usefixtures("small_steps")
def test_a_view_after_a_large_change_is_written_in_steps(tmp_path):
    machine = machine_in(tmp_path / "state", entries=1_000, tasks=10_000)
    machine.apply(story())
    machine.collect()
    views = []
    machine.view_at(LogIndex(7), lambda index, _, view: views.append((index, view)))
    entries = [*puts(7, 7, 40), *puts(8, 8, 1)]
    assert len(machine.apply(entries)) == 1, "the view does not contain entry 8"
    while machine.is_writing:
        assert not views
        machine.write_some()
    ((index, view),) = views
    assert index == machine.snapshot_index == 7
    machine.apply(entries[1:])
    machine.collect()
    assert len(list(view.scan(b"t"))) == len(list(machine._state.store.scan(b"t", b"u"))) - 1
    machine.abandon()


@pytest.mark.usefixtures("small_steps")
def test_an_entry_ends_a_batch_that_is_being_written(tmp_path):
    machine = machine_in(tmp_path / "state", entries=1_000, tasks=35)
    machine.apply(story())
    machine.collect()
    machine.apply(puts(7, 7, 40))
    assert machine.is_writing
    machine.apply(puts(8, 8, 1))
    assert not machine.is_writing
    assert machine.snapshot_index == 7
    machine.abandon()
