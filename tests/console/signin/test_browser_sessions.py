"""Sign-ins of browsers end by time, and their number is bounded."""

import pytest

from taskraft_console.signin.browser_sessions import (
    AGE_SECONDS,
    IDLE_SECONDS,
    SESSIONS_MAX,
    BrowserSessions,
)
from taskraft_console.signin.pending_signins import PENDING_MAX, PENDING_SECONDS, PendingSignIns


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_sign_in_ends_without_use(clock):
    sessions = BrowserSessions(clock)
    one = sessions.begin("anna", "token")
    clock.now = IDLE_SECONDS
    assert sessions.find(one.session_id) is one
    clock.now += IDLE_SECONDS + 1
    assert sessions.find(one.session_id) is None


def test_a_sign_in_in_use_ends_at_its_maximum_age(clock):
    sessions = BrowserSessions(clock)
    one = sessions.begin("anna", "token")
    while clock.now < AGE_SECONDS - IDLE_SECONDS:
        clock.now += IDLE_SECONDS
        assert sessions.find(one.session_id) is one
    clock.now = AGE_SECONDS + 1
    assert sessions.find(one.session_id) is None


def test_the_least_recently_used_sign_in_ends_first(clock):
    sessions = BrowserSessions(clock)
    first, second = (sessions.begin(name, "token") for name in ("anna", "ben"))
    sessions.find(first.session_id)
    for _ in range(SESSIONS_MAX - 1):
        sessions.begin("many", "token")
    assert sessions.find(first.session_id) is first
    assert sessions.find(second.session_id) is None


def test_an_ended_sign_in_is_unknown(clock):
    sessions = BrowserSessions(clock)
    one = sessions.begin("anna", "token")
    sessions.end(one.session_id)
    assert sessions.find(one.session_id) is None
    assert sessions.find("") is None


def test_a_pending_sign_in_is_taken_once_and_in_time(clock):
    pending = PendingSignIns(clock)
    first, state = pending.begin()
    assert pending.take(first) is state
    assert pending.take(first) is None
    second, _ = pending.begin()
    clock.now = PENDING_SECONDS + 1
    assert pending.take(second) is None
    third, _ = pending.begin()
    for _ in range(PENDING_MAX):
        pending.begin()
    assert pending.take(third) is None
