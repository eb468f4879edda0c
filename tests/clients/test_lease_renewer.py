"""Leases with a TTR are renewed while a handler has their tasks; the test sets the clock."""

import pytest

from taskraft import _lease, _network
from taskraft._lease import Lease
from taskraft._lease_renewer import LeaseRenewer
from taskraft.v1 import task_pb2, task_service_pb2
from tests.clients.refusals import item_error

INFINITE = float("inf")


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Woken:
    """Replaces the heartbeat thread, and counts its wake-ups."""

    def __init__(self, *_):
        self.times = 0

    def wake(self):
        self.times += 1


@pytest.fixture
def clock(monkeypatch):
    one = Clock()
    monkeypatch.setattr(_lease, "monotonic", one)
    return one


@pytest.fixture
def kept(clock, monkeypatch):
    monkeypatch.setattr(_network, "HeartbeatThread", Woken)
    return LeaseRenewer(["a:1"], None, lambda callback: callback(), clock)


def lease(token, ttr_ms=30_000, lease_ms=None, session_id="s", **options):
    lease_ms = ttr_ms if lease_ms is None else lease_ms
    message = task_pb2.Task(
        tube="emails",
        id=token,
        token=token,
        since_ms=5,
        ttr_ms=ttr_ms,
        lease_until_ms=5 + lease_ms if lease_ms else 0,
        session_id=session_id,
    )
    return Lease(message, **options)


def tokens(request):
    (settlement,) = request.settlements
    assert settlement.touch.restart
    return list(settlement.tokens)


def answer(kept, request, *errors, **told):
    touched = [
        task_service_pb2.TouchedLease(token=token, **({"lease_until_ms": 77} | told))
        for token in tokens(request)
    ]
    response = task_service_pb2.SettleTasksResponse(touched=touched, errors=errors)
    kept.answered(request, response)


def test_a_lease_is_touched_every_third_of_its_time_to_run(kept, clock):
    kept.add([lease(1)])
    for _ in range(5):
        assert kept.due() == clock.now + 10
        clock.now += 10
        request = kept.request()
        assert tokens(request) == [1]
        answer(kept, request)


def test_one_message_touches_all_leases_that_are_due_soon(kept, clock):
    kept.add([lease(1), lease(2)])
    clock.now += 4
    kept.add([lease(3)])
    clock.now += 4
    kept.add([lease(4), lease(5, ttr_ms=3_000)])
    clock.now += 2
    request = kept.request()
    assert tokens(request) == [1, 2, 3, 5]
    answer(kept, request)
    assert kept.due() == clock.now + 1, "the shortest comes next"
    clock.now += 1
    assert tokens(kept.request()) == [5]


def test_the_thread_is_woken_only_for_an_earlier_due_time(kept, clock):
    kept.add([lease(1)])
    kept.due()
    clock.now += 1
    kept.add([lease(2), lease(3)])
    assert kept._heartbeats.times == 1
    kept.add([lease(4, ttr_ms=300)])
    assert kept._heartbeats.times == 2


def test_the_next_touch_is_due_one_interval_after_the_last_was_sent(kept, clock):
    kept.add([lease(1)])
    clock.now += 10
    request = kept.request()
    clock.now += 3
    answer(kept, request)
    assert kept.due() == clock.now + 7


def test_an_unanswered_touch_is_retried_soon(kept, clock):
    kept.add([lease(1), lease(2, ttr_ms=600)])
    clock.now += 10
    kept.unanswered(kept.request())
    assert kept.due() == pytest.approx(clock.now + 0.2)
    kept.discard([2])
    assert kept.due() == clock.now + 0.5


def test_a_very_short_ttr_does_not_flood_the_server(kept, clock):
    kept.add([lease(1, ttr_ms=3)])
    assert kept.due() == pytest.approx(clock.now + 0.05)


def test_a_message_has_no_more_leases_than_its_limit(kept, clock):
    kept.add([lease(token) for token in range(1, 1_501)])
    clock.now += 10
    first = kept.request()
    assert len(tokens(first)) == 1_000
    answer(kept, first)
    assert kept.due() <= clock.now
    assert tokens(kept.request()) == list(range(1_001, 1_501))


def test_a_touch_reports_the_deadline_and_a_cancel_request(kept, clock):
    one = lease(1)
    kept.add([one])
    clock.now += 10
    answer(kept, kept.request(), cancel_requested=True)
    assert (one.message.lease_until_ms, one.message.cancel_requested) == (77, True)


def test_a_lost_lease_is_reported_once(kept, clock):
    both = [lease(1), lease(2)]
    kept.add(both)
    clock.now += 10
    answer(kept, kept.request(), item_error(1, "LEASE_STALE"))
    assert [one.is_lost for one in both] == [False, True]
    clock.now += 10
    assert tokens(kept.request()) == [1]


def test_another_error_does_not_end_the_lease(kept, clock):
    one = lease(1)
    kept.add([one])
    clock.now += 10
    answer(kept, kept.request(), item_error(0, "KIND_UNSUITABLE"))
    assert not one.is_lost


def test_a_settled_lease_is_not_reported_as_lost(kept, clock):
    one = lease(1)
    kept.add([one])
    clock.now += 10
    request = kept.request()
    kept.discard([1])
    answer(kept, request, item_error(0, "LEASE_STALE"))
    assert not one.is_lost
    assert kept.due() == INFINITE
    assert kept.request() is None


def test_a_lease_is_not_renewed_beyond_touch_max(kept, clock):
    kept.add([lease(1, touch_seconds_max=15), lease(2, touch_seconds_max=0)])
    clock.now += 10
    request = kept.request()
    assert tokens(request) == [1]
    answer(kept, request)
    clock.now += 10
    assert kept.request() is None
    assert kept.due() == INFINITE


def test_a_lease_without_a_ttr_is_lost_with_its_session(kept, clock):
    mine, other = lease(1, ttr_ms=0), lease(2, session_id="other")
    kept.add([mine, other])
    kept.session_lost("s")
    assert (mine.is_lost, other.is_lost) == (True, False)
    clock.now += 10
    assert tokens(kept.request()) == [2]


def test_a_lease_that_lost_its_ttr_is_not_touched_again(kept, clock):
    kept.add([lease(1, ttr_ms=0, lease_ms=9_000)])
    assert kept.due() == clock.now + 3
    clock.now += 3
    answer(kept, kept.request(), lease_until_ms=0)
    assert kept.due() == INFINITE


def test_a_lease_of_unknown_age_is_touched_at_once(kept, clock):
    kept.add([lease(1, is_fresh=False)])
    assert kept.due() <= clock.now
    answer(kept, kept.request())
    assert kept.due() == clock.now + 10


def test_a_longer_lease_is_touched_by_the_ttr_of_the_task(kept, clock):
    kept.add([lease(1, ttr_ms=30_000, lease_ms=600_000)])
    assert kept.due() == clock.now + 10
