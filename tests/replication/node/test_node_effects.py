"""Effects run on the event loop; messages of peers reach only a running member."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from taskraft_replication.errors import (
    DirectoryUnknown,
    MessageMalformed,
    SnapshotBroken,
    SnapshotBusy,
)
from taskraft_replication.node.node_effects import NodeEffects, PeerReceiver, SealingSink

TWO = MemberId(2)
BEAT = Message(MessageKind.HEARTBEAT, MemberId(1), TWO)


class Host:
    """A node with its storage worker, driver and peers; records their calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.is_running = True
        self.beacons = SimpleNamespace(make=lambda: b"from here", received=self._hear)
        self.error: Exception | None = None
        self.work: list[tuple] = []
        self.core = SimpleNamespace(commit_index=LogIndex(5))
        self.effects = NodeEffects(self, self)
        preferred = SimpleNamespace(received=self._seen)
        self.receiver = PeerReceiver(self, preferred, self, self, self, self)

    def _seen(self, messages, commit) -> None:
        self.calls.append(("seen", commit))

    def _hear(self, member, beacon) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(("beacon", member, beacon))

    def submit(self, work, then) -> None:
        self.work.append((work, then))

    def finish(self) -> None:
        work, then = self.work.pop(0)
        then(work())

    def pump(self) -> None:
        self.effects.is_pump_due = False
        self.calls.append("pump")

    def fail(self, error) -> None:
        self.calls.append(error)

    def send(self, messages) -> None:
        self.calls.append(("send", *messages))

    def set_preferred(self, chosen) -> None:
        self.calls.append(("first", chosen))

    def send_snapshot(self, *snapshot) -> None:
        self.calls.append(("snapshot", *snapshot))

    async def close(self) -> None:
        self.calls.append("closed")

    def receive(self, messages) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(("received", *messages))

    def unreachable(self, member) -> None:
        self.calls.append(("unreachable", member))

    def others_seen_running(self) -> None:
        self.calls.append("others running")

    def stream_ended(self, member) -> None:
        self.calls.append(("stream ended", member))

    def handshake_done(self, member, directory_id) -> None:
        self.calls.append(("met", member, directory_id))

    def snapshot_sent(self, member, *, ok) -> None:
        self.calls.append(("sent", member, ok))


async def test_pumps_requested_in_one_turn_run_once():
    host = Host()
    for _ in range(3):
        host.effects.request_pump()
    assert not host.calls, "the pump runs in the next turn"
    await asyncio.sleep(0)
    assert host.calls == ["pump"]
    host.effects.request_pump()
    await asyncio.sleep(0)
    assert host.calls == ["pump"] * 2


async def test_callbacks_of_finished_storage_work_run_at_once():
    host = Host()
    host.effects.store(lambda: 7, host.calls.append)
    assert not host.calls
    host.effects.request_pump()
    host.finish()
    assert host.calls == [7, "pump"]
    await asyncio.sleep(0)
    assert host.calls == [7, "pump"], "the pump has run already"


async def test_a_bug_in_a_storage_callback_stops_the_node():
    host = Host()
    error = RuntimeError()

    def fail(_: object) -> None:
        raise error

    host.effects.store(lambda: 7, fail)
    host.finish()
    assert host.calls == [error]


async def test_a_flush_runs_in_the_background_and_close_waits_for_it():
    host = Host()
    may_end = threading.Event()
    host.effects.flush(
        lambda: may_end.wait() and threading.current_thread().name, host.calls.append
    )
    await asyncio.sleep(0)
    closing = asyncio.create_task(host.effects.close())
    await asyncio.sleep(0)
    assert not closing.done()
    assert not host.calls
    may_end.set()
    await closing
    assert not host.calls, "results after the end are dropped"


async def test_a_flush_reports_its_result_to_the_driver_and_its_error_to_the_node():
    host = Host()
    done = asyncio.Event()
    host.effects.flush(
        threading.current_thread, lambda thread: host.calls.append(thread) or done.set()
    )
    await done.wait()
    thread, pump = host.calls
    assert thread is not threading.current_thread()
    assert pump == "pump"
    error = OSError()
    host.fail = lambda error: host.calls.append(error) or done.set()

    def fail() -> None:
        raise error

    done.clear()
    host.effects.flush(fail, host.calls.append)
    await done.wait()
    assert host.calls[2:] == [error]
    await asyncio.sleep(0)
    assert not host.effects._background._tasks, "finished tasks are not kept"


async def test_messages_are_sent_only_once_there_are_peers():
    host = Host()
    for _ in range(2):
        host.effects.send([BEAT])
        host.effects.set_preferred(frozenset({TWO}))
        host.effects.send_snapshot(BEAT, 1, 2)
        host.effects.peers = host
    sent = [("send", BEAT), ("first", frozenset({TWO})), ("snapshot", BEAT, 1, 2)]
    assert host.calls == sent
    await host.effects.close()
    assert host.calls == [*sent, "closed"]


async def test_a_state_that_cannot_be_written_is_sent_to_nobody_and_stops_the_node():
    host = Host()
    error = OSError("the disk is full")

    def open_state(_: object) -> None:
        raise error

    host.open_state = open_state
    with pytest.raises(SnapshotBroken):
        await host.receiver.open_state(TWO)
    assert host.calls == [error]


async def test_messages_of_peers_reach_the_driver():
    host = Host()
    host.receiver.receive([BEAT])
    host.receiver.unreachable(TWO)
    host.receiver.stream_ended(TWO)
    host.receiver.handshake_done(TWO, "d2")
    host.receiver.snapshot_sent(TWO, ok=False)
    assert host.calls == [
        ("seen", 5),
        ("received", BEAT),
        ("unreachable", 2),
        ("stream ended", 2),
        ("met", 2, "d2"),
        ("sent", 2, False),
    ]


async def test_only_a_running_member_exchanges_beacons():
    host = Host()
    assert host.receiver.make_beacon() == b"from here"
    host.receiver.receive_beacon(TWO, b"from there")
    assert host.calls == [("beacon", 2, b"from there")]
    host.is_running = False
    host.receiver.receive_beacon(TWO, b"too late")
    assert len(host.calls) == 1


async def test_a_malformed_beacon_is_refused_and_a_bug_stops_the_node():
    host = Host()
    host.error = MessageMalformed("bad")
    with pytest.raises(MessageMalformed):
        host.receiver.receive_beacon(TWO, b"")
    assert not host.calls
    host.error = AssertionError("a bug")
    host.receiver.receive_beacon(TWO, b"")
    assert host.calls == [host.error]


async def test_a_broken_invariant_or_an_expulsion_stops_the_node():
    host = Host()
    host.error = AssertionError("two leaders")
    host.receiver.receive([BEAT])
    refusal = DirectoryUnknown("x")
    host.receiver.refused(refusal)
    assert host.calls == [("seen", 5), host.error, refusal]


async def test_a_member_that_does_not_run_only_learns_that_others_run():
    host = Host()
    host.is_running = False
    host.receiver.receive([BEAT])
    host.receiver.unreachable(TWO)
    host.receiver.stream_ended(TWO)
    host.receiver.snapshot_sent(TWO, ok=True)
    with pytest.raises(SnapshotBusy, match="stopping"):
        host.receiver.begin_snapshot(BEAT, "x")
    assert host.calls == ["others running"]


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_replaced_sender_leaves_an_incomplete_snapshot_to_the_next(is_whole):
    done: list[object] = []
    incoming = SimpleNamespace(
        attach=lambda: 3, detach=done.append, complete=done.append, name="content", size=7
    )
    meta = SnapshotMeta(LogIndex(5), Term(1), ConfState((TWO,)))
    message = Message(MessageKind.SNAPSHOT, MemberId(1), TWO, snapshot=Snapshot(meta, b""))
    taken = []
    driver = SimpleNamespace(
        receive_snapshot=lambda *given: (taken.append(given[:2]), given[2](None))
    )
    sink = SealingSink(incoming, message, driver)
    if is_whole:
        assert await sink.finish() == 7
        ((calls, content),) = taken
        assert content is incoming
        assert calls.snapshot == Snapshot(meta, b"content")
    sink.abandon()
    assert done == [3], "completed" if is_whole else "detached"
