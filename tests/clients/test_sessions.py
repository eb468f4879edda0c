"""Heartbeats are sent from a background thread."""

import threading
import time
import uuid
from types import SimpleNamespace

import grpc
import pytest

from taskraft import AsyncClient, Client
from taskraft._heartbeats import NEVER, HeartbeatThread
from taskraft._sessions import SessionKeepAlive
from tests.turns import blocked_until

pytestmark = pytest.mark.real_time


@pytest.fixture
def keep_alive(three):
    one = SessionKeepAlive(three.target.split(","), None)
    yield one
    one.close()


async def test_a_blocked_event_loop_does_not_lose_the_session(cluster):
    async with AsyncClient(cluster.target, session_ttr="2s") as client:
        await client.tube("emails").put("a")
        await client.tube("emails").take(wait=0)
        # This sleep blocks the event loop.
        blocked_until(lambda: len(cluster.asked("KeepSessions")) >= 2)
        kept = [set(request.session_ids) for request in cluster.requests("KeepSessions")]
        assert kept[0]
        assert all(each == kept[0] for each in kept)


def test_heartbeats_are_sent_every_third_of_the_ttr(three, keep_alive):
    session_id = three.open_session()
    started = time.monotonic()
    keep_alive.add(session_id, 300, lambda: None)
    blocked_until(lambda: len(three.asked("KeepSessions")) >= 3)
    # The test checks only a minimum, because the delay of a heartbeat depends on the machine.
    assert time.monotonic() - started >= 0.25


def test_a_shorter_session_shortens_the_wait(three, keep_alive):
    first, second = three.open_session(), three.open_session()
    keep_alive.add(first, 60_000, lambda: None)
    keep_alive.add(second, 60, lambda: None)
    blocked_until(lambda: three.asked("KeepSessions"))
    assert sorted(three.requests("KeepSessions")[0].session_ids) == sorted([first, second])


def test_a_session_that_the_server_does_not_know_is_reported_once(three, keep_alive):
    lost = threading.Event()
    gone = str(uuid.uuid4())
    keep_alive.add(gone, 60, lost.set)
    assert lost.wait(10)
    session_id = three.open_session()
    keep_alive.add(session_id, 60, lambda: None)
    blocked_until(lambda: session_id in three.requests("KeepSessions")[-1].session_ids)
    assert gone not in three.requests("KeepSessions")[-1].session_ids


def test_heartbeats_continue_when_the_leader_is_killed(three, keep_alive):
    session_id = three.open_session()
    keep_alive.add(session_id, 90, lambda: None)
    blocked_until(lambda: three.asked("KeepSessions"))
    three.elect(1)
    three.kill(0)
    seen = len(three.asked("KeepSessions"))
    blocked_until(lambda: len(three.asked("KeepSessions")) >= seen + 2)
    assert list(three.requests("KeepSessions")[-1].session_ids) == [session_id]


def test_a_removed_session_gets_no_heartbeats(three, keep_alive):
    first, second = three.open_session(), three.open_session()
    keep_alive.add(first, 60, lambda: None)
    keep_alive.add(second, 60, lambda: None)
    keep_alive.remove(first)
    seen = len(three.asked("KeepSessions"))
    blocked_until(lambda: len(three.asked("KeepSessions")) >= seen + 2)
    assert list(three.requests("KeepSessions")[-1].session_ids) == [second]


def test_the_thread_ends_with_the_client(cluster):
    with Client(cluster.target) as client:
        client.tube("emails").put("a")
        client.tube("emails").take(wait=0)
        assert [each for each in threading.enumerate() if each.name == "taskraft-heartbeats"]
    assert not [each for each in threading.enumerate() if each.name == "taskraft-heartbeats"]


class OneHeartbeat:
    """Requests heartbeats until one is answered."""

    def __init__(self):
        self.is_answered = threading.Event()

    def due(self):
        return NEVER if self.is_answered.is_set() else 0.0

    def request(self):
        return b"beat"

    def allowed_seconds(self):
        return 10.0

    def answered(self, _request, _response):
        self.is_answered.set()

    def unanswered(self, _request):
        pass


class Beat:
    """A heartbeat in flight on a channel."""

    def __init__(self, channel):
        self.channel = channel

    def result(self):
        if self.channel.is_first:
            raise grpc.RpcError
        return b"answer"

    def cancel(self):
        return False

    def initial_metadata(self):
        return ()

    trailing_metadata = initial_metadata


def test_a_heartbeat_that_failed_is_repeated_on_a_new_channel(monkeypatch):
    """A new channel resolves the name of the node, which may have another address now."""
    opened = []

    def open_channel(_address, **_fields):
        channel = SimpleNamespace(is_first=not opened, close=lambda: None)
        opened.append(channel)
        return channel

    monkeypatch.setattr(grpc, "insecure_channel", open_channel)
    source = OneHeartbeat()

    def method(channel):
        return SimpleNamespace(future=lambda _request, timeout: Beat(channel))

    thread = HeartbeatThread("beats", source, method, ["n1.test:7401"], None)
    thread.wake()
    source.is_answered.wait()
    thread.close()
    assert len(opened) == 2
