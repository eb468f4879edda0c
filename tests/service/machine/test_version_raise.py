"""The raise of the cluster version on real RocksDB: converted once, and continued after a kill."""

import multiprocessing
import os
import signal

import pytest

from taskraft_replication.core.types import LogIndex
from taskraft_replication.errors import FormatUnknown
from taskraft_service.command_codecs.sessions import SET_CLUSTER_VERSION
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.queue.operations.sessions import KeepSessions
from taskraft_service.queue.store.keys import META, TASK, UPGRADE_MARKER, prefix_stop
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.stubs.log.v1 import log_pb2
from tests.service.later_release import COPIES, become_later_release
from tests.service.machine.test_state_machine import MIB, entry, machine_in, story

RAISE = 7
TASKS = 7


def raised(index=RAISE, version=2):
    message = log_pb2.SetClusterVersion(version=version)
    return entry(index, encode_leader_command(SET_CLUSTER_VERSION, message))


class KilledStore(RocksStore):
    """A store whose process is killed instead of a batch of the conversion."""

    batches_left = 1 << 30
    is_flushed = False

    def write(self, writes):
        writes = list(writes)
        if any(key == UPGRADE_MARKER for key, _ in writes):
            if not KilledStore.batches_left:
                os.kill(os.getpid(), signal.SIGKILL)
            KilledStore.batches_left -= 1
        super().write(writes)
        if self.is_flushed:
            self.flush()


def raise_and_be_killed(place, batches, is_flushed):
    """Apply the raise and one more entry in a process of its own."""
    KilledStore.batches_left, KilledStore.is_flushed = batches, is_flushed
    with pytest.MonkeyPatch.context() as patch:
        become_later_release(patch)
        machine = machine_in(place, store=KilledStore)
        machine.apply([*story(), raised()])
        machine.collect()
        machine.flush_durably()
        machine.apply([entry(RAISE + 1)])


def content(place):
    """Return the format, the copies and the task records of a closed database."""
    store = RocksStore(place, MIB, MIB)
    tasks = dict(store.scan(TASK, prefix_stop(TASK)))
    copies = {key[1:]: value for key, value in store.scan(COPIES, prefix_stop(COPIES))}
    found = store.get(META)[0], store.get(UPGRADE_MARKER), copies, tasks
    store.close()
    return found


@pytest.mark.parametrize("is_flushed", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("batches", [0, 1, 4, TASKS])
def test_a_kill_in_the_conversion_is_continued_at_the_next_start(
    tmp_path, monkeypatch, batches, is_flushed
):
    place = tmp_path / "state"
    work = (place, batches, is_flushed)
    process = multiprocessing.get_context("spawn").Process(target=raise_and_be_killed, args=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    become_later_release(monkeypatch)
    machine = machine_in(place)
    assert machine.applied_index == RAISE
    assert machine.cluster_version == 2
    machine.apply([entry(RAISE + 1)])
    digest, database = machine.queue.digest(), machine._state.place
    machine.close()
    found, marker, copies, tasks = content(database)
    assert (found, marker) == (19, None)
    assert len(copies) == TASKS
    assert copies == tasks, "each record is converted once"
    whole = machine_in(tmp_path / "whole")
    whole.apply([*story(), raised(), entry(RAISE + 1)])
    assert whole.queue.digest() == digest
    whole.abandon()


def test_the_store_has_the_old_format_until_the_raise(tmp_path, monkeypatch):
    become_later_release(monkeypatch)
    machine = machine_in(tmp_path)
    machine.apply(story())
    machine.collect()
    assert machine._state.store.get(META)[0] == 18
    assert machine.cluster_version == 1
    machine.close()
    machine = machine_in(tmp_path)
    machine.apply([])
    machine.collect()
    assert machine._state.store.get(META)[0] == 18, "the previous release can return"
    machine.apply([raised()])
    assert machine.cluster_version == 2
    machine.apply([entry(RAISE + 1)])
    machine.collect()
    assert machine._state.store.get(META)[0] == 19
    machine.apply([raised(RAISE + 2, version=1)])
    assert machine.cluster_version == 2, "the version is never lowered"
    machine.abandon()


def test_a_raise_to_an_unknown_version_stops_the_node_and_changes_nothing(tmp_path):
    machine = machine_in(tmp_path)
    machine.apply(story())
    with pytest.raises(FormatUnknown, match="log entry 7: the cluster is at cluster version 2"):
        machine.apply([raised()])
    assert (machine.applied_index, machine.cluster_version) == (RAISE - 1, 1)
    machine.abandon()


def test_members_compare_equal_records_at_the_raise_also_after_a_restart(tmp_path, monkeypatch):
    """A member that restarts converts its records before the next entry; others do it then."""
    become_later_release(monkeypatch)
    seen = []
    for is_restarted in (False, True):
        place = tmp_path / str(is_restarted)
        machine = machine_in(place)
        machine.apply([*story(), raised()])
        if is_restarted:
            machine.close()
            machine = machine_in(place)
        views = []
        machine.view_at(LogIndex(RAISE), lambda *view, views=views: views.append(view))
        ((_, _, view),) = views
        seen.append(list(view.scan(COPIES)))
        machine.abandon()
    assert len(seen[0]) == TASKS
    assert seen[0] == seen[1]


def test_own_entries_are_decoded_while_the_cluster_version_is_lower(tmp_path, monkeypatch):
    """The cluster version may hide fields of a request from all replicas, the leader included."""
    become_later_release(monkeypatch)
    machine = machine_in(tmp_path)
    own = entry(1)
    machine.expect(own.data, 5, [KeepSessions(["marked"])])
    (done,) = machine.apply([own])
    assert len(done.results) == 0
    machine.apply([raised(2)])
    own = entry(3)
    machine.expect(own.data, 5, [KeepSessions(["marked"])])
    (done,) = machine.apply([own])
    assert len(done.results) == 1
    machine.abandon()
