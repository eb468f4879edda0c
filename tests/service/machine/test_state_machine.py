"""Replicas agree after entries, crashes and snapshots."""

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.types import Entry, EntryKind, LogIndex, Term
from taskraft_replication.errors import FormatUnknown
from taskraft_service import versions
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.sessions import STARTUP
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.entries.log_entry import encode_entry
from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.feed import chunk, feed_partition
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.sessions import KeepSessions
from taskraft_service.queue.persistence import state_records
from taskraft_service.queue.state import cluster_version
from taskraft_service.queue.store.keys import META
from taskraft_service.storage.directory import StateDirectory
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.snapshot import RocksSnapshot, SnapshotDamaged
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.wire import WireMalformed

MIB = 1 << 20


class Clock:
    time_ms = 0

    def __call__(self):
        return self.time_ms


def machine_in(
    place,
    clock=None,
    entries=100,
    tasks=1_000_000,
    store=RocksStore,
    fresh=1_000_000,
    content_bytes=1 << 40,
):
    return QueueMachine(
        StateDirectory(place, "c", 1),
        lambda path: store(path, MIB, MIB),
        Limits(),
        CollectPolicy(entries, 1_000, tasks, fresh, content_bytes),
        clock or Clock(),
    )


def entry(index, *encoded, now_ms=None):
    data = encode_entry(now_ms or 1_000 + index, encoded)
    return Entry(Term(1), LogIndex(index), data)


def story(first=1):
    """Return entries that create data of every kind."""
    tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFOTTL)
    startup = log_pb2.Startup(member_id=1, feed_id="f", feed_partitions=2)
    put = pb.PutTasksRequest(
        request_id="r", tube="t", tasks=[task_pb2.TaskSpec(payload=b"p%d" % n) for n in range(9)]
    )
    take = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="t")], tasks_max=4)
    ack = pb.Settlement(tokens=[1, 2], ack=pb.Settlement.Ack())
    return [
        Entry(Term(1), LogIndex(first)),
        entry(first + 1, encode_leader_command(STARTUP, startup)),
        entry(
            first + 2,
            encode_leader_command(CREATE_TUBE, tube_service_pb2.CreateTubeRequest(tube=tube)),
            encode_leader_command(PUT, put, RequestKey(5)),
        ),
        entry(first + 3, encode_leader_command(TAKE, take)),
        Entry(Term(1), LogIndex(first + 4), b"members", EntryKind.CONF_CHANGE_V2),
        entry(first + 5, encode_leader_command(SETTLE, pb.SettleTasksRequest(settlements=[ack]))),
    ]


@pytest.fixture
def machine(tmp_path):
    one = machine_in(tmp_path / "state")
    yield one
    one.abandon()


def test_every_entry_has_a_result_even_an_empty_one(machine):
    done = machine.apply(story())
    assert [len(one.results) for one in done] == [0, 1, 2, 1, 0, 1]
    assert [one.index for one in done] == [1, 2, 3, 4, 5, 6]
    assert machine.applied_index == 6
    assert done[3].now_ms == 1_004


def test_entries_of_this_leader_are_not_decoded_again(machine):
    own = [KeepSessions(["marked"])]
    data = encode_entry(5, [])
    machine.expect(data, 5, own)
    (done,) = machine.apply([Entry(Term(1), LogIndex(1), data)])
    assert len(done.results) == 1
    # A leader recognises its entry by content and only once: a later equal entry is decoded.
    (done,) = machine.apply([Entry(Term(1), LogIndex(2), data)])
    assert len(done.results) == 0


def test_an_entry_of_a_later_version_stops_the_node(machine):
    with pytest.raises(WireMalformed):
        machine.apply([Entry(Term(1), LogIndex(1), b"\x7a\x00")])


def test_after_a_crash_the_log_is_replayed_from_the_last_flush(tmp_path):
    entries = story()
    whole = machine_in(tmp_path / "whole")
    whole.apply(entries)
    expected = whole.queue.digest()
    whole.abandon()
    for kept in range(len(entries)):
        place = tmp_path / f"crashed-{kept}"
        machine = machine_in(place)
        machine.apply(entries[:kept])
        machine.collect()
        assert machine.flush_durably() == kept
        machine.apply(entries[kept:])
        machine.abandon()
        again = machine_in(place)
        # A crash keeps at least the flushed entries, perhaps more.
        assert kept <= again.applied_index <= len(entries)
        assert again.durable_index == again.applied_index
        again.apply(entries[again.applied_index :])
        assert again.queue.digest() == expected
        again.abandon()


def test_changes_are_collected_by_number_and_by_time(tmp_path):
    clock = Clock()
    machine = machine_in(tmp_path / "state", clock, entries=3)
    entries = story()
    machine.apply(entries[:1])
    assert machine.flush_durably() == 1, "a snapshot exists from the first entry on"
    machine.apply(entries[1:3])
    assert machine.flush_durably() == 1
    machine.apply(entries[3:4])
    assert machine.flush_durably() == 4
    machine.apply(entries[4:5])
    assert machine.flush_durably() == 5, "a joining member needs a snapshot that names it"
    clock.time_ms = 1_000
    machine.apply(entries[5:6])
    assert machine.flush_durably() == 6
    machine.abandon()


def puts(first, last, tasks):
    """Return entries that each put ``tasks`` tasks."""
    specs = [task_pb2.TaskSpec(payload=b"p")] * tasks
    return [
        entry(
            index,
            encode_leader_command(PUT, pb.PutTasksRequest(tube="t", tasks=specs), RequestKey(5)),
        )
        for index in range(first, last + 1)
    ]


def test_each_entry_reads_some_tasks_ahead(tmp_path):
    machine = machine_in(tmp_path / "state", entries=1_000)
    machine.apply(story())
    tube = machine.queue._state.tubes["t"]
    machine.queue.ahead += [(tube, []), (tube, [])]
    machine.apply(puts(7, 7, 1))
    assert len(machine.queue.ahead) == 1
    machine.apply(puts(8, 9, 1))
    assert not machine.queue.ahead
    machine.abandon()


def test_few_changes_are_written_after_a_while(tmp_path):
    clock = Clock()
    machine = machine_in(tmp_path / "state", clock, entries=1_000)
    machine.apply(story())
    assert machine.snapshot_index == 6
    clock.time_ms = 999
    machine.apply(puts(7, 7, 1))
    assert machine.snapshot_index == 6
    clock.time_ms = 1_000
    machine.apply(puts(8, 8, 1))
    assert machine.snapshot_index == 8
    clock.time_ms = 1_999
    machine.apply(puts(9, 9, 1))
    assert machine.snapshot_index == 8, "the interval restarts with each collection"
    machine.abandon()


def content_of(snapshot):
    pieces = (snapshot.read(offset, MIB) for offset in itertools.count(0, MIB))
    return b"".join(itertools.takewhile(len, pieces))


def test_a_snapshot_makes_an_equal_replica(tmp_path):
    first = machine_in(tmp_path / "first")
    first.apply(story())
    first.collect()
    assert first.snapshot_index == 6
    snapshot = first.open_snapshot()
    later = entry(
        7, encode_leader_command(TAKE, pb.TakeTasksRequest(sources=[pb.TakeSource(tube="t")]))
    )
    first.apply([later])
    second = machine_in(tmp_path / "second")
    heard = []
    second.listen(heard.append)
    staged = second.stage_snapshot(snapshot.index, [content_of(snapshot)])
    assert second.applied_index == 0, "the old state is still used"
    staged.switch()
    assert second.applied_index == 0
    staged.adopt()
    assert second.applied_index == second.durable_index == second.snapshot_index == 6
    assert heard == [1_006]
    staged.discard()
    second.apply([later])
    assert second.queue.digest() == first.queue.digest()
    second.close()
    again = machine_in(tmp_path / "second")
    assert again.applied_index == 7
    assert len(list((tmp_path / "second").glob("0*"))) == 1
    again.abandon()
    snapshot.close()
    first.abandon()


@pytest.mark.parametrize("switched", [False, True])
def test_a_crash_around_the_switch_leaves_the_old_state_or_the_new(tmp_path, switched):
    first = machine_in(tmp_path / "first")
    first.apply(story())
    first.collect()
    snapshot = first.open_snapshot()
    second = machine_in(tmp_path / "second")
    second.apply(story()[:2])
    second.collect()
    second.flush_durably()
    staged = second.stage_snapshot(snapshot.index, [content_of(snapshot)])
    if switched:
        staged.switch()
    # A crash leaves the files in their present state.
    shutil.copytree(tmp_path / "second", tmp_path / "crashed")
    again = machine_in(tmp_path / "crashed")
    assert again.applied_index == (6 if switched else 2)
    again.abandon()
    second.abandon()
    first.abandon()


def test_a_flush_during_a_switch_flushes_the_new_state(tmp_path):
    first = machine_in(tmp_path / "first")
    first.apply(story())
    first.collect()
    snapshot = first.open_snapshot()
    second = machine_in(tmp_path / "second")
    staged = second.stage_snapshot(snapshot.index, [content_of(snapshot)])
    staged.switch()
    staged.adopt()
    assert second.flush_durably() == 6
    staged.discard()
    assert second.flush_durably() == 6
    second.close()
    first.abandon()


def test_a_snapshot_is_opened_while_entries_are_applied(tmp_path):
    machine = machine_in(tmp_path / "state", entries=1)
    machine.apply(story())
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(machine.open_snapshot)
        machine.apply([Entry(Term(1), LogIndex(index)) for index in range(7, 300)])
        snapshot = opening.result()
    assert 6 <= snapshot.index <= 299
    other = machine_in(tmp_path / "other")
    staged = other.stage_snapshot(snapshot.index, [content_of(snapshot)])
    staged.switch()
    staged.adopt()
    assert other.applied_index == snapshot.index
    other.abandon()
    machine.abandon()


def test_a_damaged_snapshot_changes_nothing(tmp_path, machine):
    machine.apply(story())
    before = machine.queue.digest()
    other = machine_in(tmp_path / "other")
    other.apply(story()[:3])
    other.collect()
    snapshot = other.open_snapshot()
    whole = content_of(snapshot)
    with pytest.raises(SnapshotDamaged):
        machine.stage_snapshot(LogIndex(3), [whole[:-9]])
    with pytest.raises(SnapshotDamaged, match="expected 4"):
        machine.stage_snapshot(LogIndex(4), [whole])
    # The files of the sender are damaged, which is no reason for this node to stop.
    with pytest.raises(SnapshotDamaged, match="a damaged file: MANIFEST"):
        machine.stage_snapshot(LogIndex(3), [whole.replace(b"leveldb", b"levelDB")])
    assert len(list(machine._directory._path.glob("0*"))) == 1, "no file of the snapshot is left"
    assert machine.queue.digest() == before
    assert machine.applied_index == 6
    snapshot.close()
    other.abandon()


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        (b"taskraft state 2\n", b"taskraft state 3\n", "has format 3, .* reads format 2"),
        (b"taskraft state 2\n", b"taskraft state 1\n", "has format 1, .* reads format 2"),
    ],
)
def test_a_snapshot_of_another_format_changes_nothing(tmp_path, machine, old, new, refusal):
    machine.apply(story())
    before = machine.queue.digest()
    other = machine_in(tmp_path / "other")
    other.apply(story()[:3])
    other.collect()
    snapshot = other.open_snapshot()
    whole = content_of(snapshot)
    assert old in whole
    with pytest.raises(FormatUnknown, match=refusal):
        machine.stage_snapshot(LogIndex(3), [whole.replace(old, new)])
    assert len(list(machine._directory._path.glob("0*"))) == 1, "no file of the snapshot is left"
    assert (machine.queue.digest(), machine.applied_index) == (before, 6)
    snapshot.close()
    other.abandon()


def test_a_snapshot_of_a_newer_cluster_version_names_the_version(tmp_path, machine):
    other = machine_in(tmp_path / "other")
    other.apply(story()[:3])
    other.collect()
    meta = other._state.store.get(META)
    snapshot = other.open_snapshot()
    other._state.store.write([(META, bytes((19, 0, 2)) + meta[3:])])
    place = other._directory.outgoing()
    other._state.store.freeze(place)
    newer = RocksSnapshot(LogIndex(3), place, versions.FORMATS[versions.HIGHEST])
    with pytest.raises(FormatUnknown, match="run a release that speaks cluster version 2"):
        machine.stage_snapshot(LogIndex(3), [content_of(newer)])
    assert len(list(machine._directory._path.glob("0*"))) == 1, "no file of the snapshot is left"
    newer.close()
    snapshot.close()
    other.abandon()


def test_snapshots_and_the_feed_follow_the_cluster_version(tmp_path, monkeypatch):
    """A later build has later formats; before the raise, it writes the formats before."""
    own = versions.FORMATS[versions.LOWEST]
    later_feed, later_snapshot = own.feed + 1, own.snapshot + 1
    later = versions.Formats(own.state, later_feed, later_snapshot, own.digest)
    formats = {versions.LOWEST: own, 2: later}
    monkeypatch.setattr(cluster_version, "FORMATS", formats)
    monkeypatch.setattr(state_records, "FORMATS", formats)
    monkeypatch.setattr(state_records, "check_version", lambda version: version)

    def encode_later(fields, bytes_before):
        written.append(len(fields))
        return chunk.encode(fields, bytes_before)

    written = []
    monkeypatch.setattr(
        feed_partition, "ENCODERS", {own.feed: chunk.encode, later_feed: encode_later}
    )
    machine = machine_in(tmp_path)
    machine.apply(story())
    machine.collect()
    with closing(machine.open_snapshot()) as before:
        assert content_of(before).startswith(b"taskraft state 2\n")
    assert not written, "the feed was written in the later form before the raise"
    machine.queue._state.cluster = cluster_version.ClusterVersionState(2)
    machine.apply([each for each in story(7)[2:] if each.kind is EntryKind.NORMAL])
    machine.collect()
    assert written, "the feed was written in the earlier form after the raise"
    with closing(machine.open_snapshot()) as after:
        assert content_of(after).startswith(b"taskraft state 3\n")
    machine.abandon()


def test_replicas_that_collect_at_different_times_agree(tmp_path):
    digests = set()
    for pace in (1, 2, 100):
        machine = machine_in(tmp_path / str(pace), entries=pace)
        machine.apply(story())
        digests.add(machine.queue.digest())
        machine.abandon()
    assert len(digests) == 1


def test_a_timestamp_below_the_last_one_does_not_turn_the_clock_back(machine):
    """A new leader may not have applied all timestamps of the previous leader yet."""
    machine.apply([entry(1, now_ms=5_000)])
    (applied,) = machine.apply([entry(2, now_ms=4_000)])
    assert applied.now_ms == machine.queue.now_ms == 5_000


def test_replicas_agree_with_any_difference_between_their_clocks(tmp_path):
    early, late = Clock(), Clock()
    late.time_ms = 1 << 50
    machines = [machine_in(tmp_path / name, clock) for name, clock in (("a", early), ("b", late))]
    results = [[machine.apply([each]) for each in story()] for machine in machines]
    assert results[0] == results[1]
    assert machines[0].queue.digest() == machines[1].queue.digest()
    for machine in machines:
        machine.close()
