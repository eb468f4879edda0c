"""The conversion of a store to a newer format, interrupted after each batch."""

from dataclasses import replace

import pytest

from taskraft_service import versions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence import state_records, upgrade_chain
from taskraft_service.queue.persistence.state_records import (
    UnknownFormatError,
    collect,
    format_of,
    open_state,
)
from taskraft_service.queue.persistence.upgrade_chain import StepPart, upgrade_store
from taskraft_service.queue.store.keys import META, UPGRADE_MARKER
from taskraft_service.storage.memory import MemoryStore
from taskraft_service.versions import ClusterVersionUnknown, StateVersion

KEYS = [b"u%d" % number for number in range(5)]


class Killed(Exception):
    """The process ended instead of writing a batch."""


class KilledStore(MemoryStore):
    """A store whose process is killed after some batches."""

    batches_left = 1 << 30

    def write(self, writes):
        if not self.batches_left:
            raise Killed
        self.batches_left -= 1
        super().write(writes)


def double_each(store, cursor):
    """Convert one record per part; a record that is converted twice shows it."""
    pairs = [pair for pair in store.scan(b"u", b"v") if pair[0] > cursor]
    if pairs:
        key, value = pairs[0]
        return StepPart(((key, value * 2),), key)
    return StepPart((), None, bytes((19,)) + store.get(META)[1:])


@pytest.fixture
def next_format(monkeypatch):
    """Add a format 19 after format 18, as a later release does."""
    later = int.__new__(StateVersion, 19)
    later._name_, later._value_ = "V19", 19
    members = [*StateVersion, later]
    formats = {
        1: replace(versions.FORMATS[versions.LOWEST], state=later),
    }
    monkeypatch.setattr(upgrade_chain, "StateVersion", members)
    monkeypatch.setattr(upgrade_chain, "FORMATS", formats)
    layouts = {**state_records.META_LAYOUTS, later: state_records.META_LAYOUTS[18]}
    monkeypatch.setattr(state_records, "META_LAYOUTS", layouts)
    monkeypatch.setattr(state_records, "StateVersion", lambda number: number)
    return later


def filled():
    store = KilledStore()
    state = open_state(store, Limits())
    state.index = 7
    store.write(collect(state))
    store.write([(key, b"x") for key in KEYS])
    return store


def test_a_current_store_is_not_written():
    store = filled()
    store.batches_left = 0
    assert upgrade_store(store) == 0
    assert upgrade_store(MemoryStore()) == 0


@pytest.mark.parametrize("killed_after", range(len(KEYS) + 1))
def test_a_kill_at_any_batch_is_continued(next_format, killed_after):
    store = filled()
    store.batches_left = killed_after
    with pytest.raises(Killed):
        upgrade_store(store, {next_format: double_each})
    assert store.get(META)[0] == 18, "the store counts as converted before the last batch"
    store.batches_left = 1 << 30
    left = upgrade_store(store, {next_format: double_each})
    assert left == len(KEYS) + 1 - killed_after
    assert [store.get(key) for key in KEYS] == [b"xx"] * len(KEYS)
    assert store.get(META)[0] == 19
    assert store.get(UPGRADE_MARKER) is None
    assert upgrade_store(store, {next_format: double_each}) == 0


def test_a_newer_cluster_version_is_refused_by_its_number():
    store = filled()
    meta = store.get(META)
    store.write([(META, bytes((19, 0, 2)) + meta[3:])])
    store.batches_left = 0
    with pytest.raises(ClusterVersionUnknown) as refused:
        upgrade_store(store)
    assert str(refused.value) == (
        "the cluster is at cluster version 2, and this release speaks cluster version 1; "
        "run a release that speaks cluster version 2"
    )


@pytest.mark.parametrize("number", [17, 19])
def test_a_format_that_no_release_had_is_refused(number):
    with pytest.raises(UnknownFormatError, match=f"the store has format {number}, this release"):
        format_of(bytes((number, 0, 1)) + bytes(100))
