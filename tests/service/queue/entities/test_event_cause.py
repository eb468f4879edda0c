"""Failures of one kind have one fingerprint, and messages in events are bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.queue.entities.event_cause import (
    MESSAGE_BYTES_MAX,
    NO_CAUSE,
    EventCause,
    failure_cause,
    normalised,
)
from taskraft_service.queue.entities.task_view import Failure


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("order 4711 not found", "order <number> not found"),
        ("timeout after 30.5 s", "timeout after <number>.<number> s"),
        ("user 0c5e4d2a-9b1f-4e0a-8c6d-1f2e3d4c5b6a", "user <id>"),
        ("object at 0x7f3a9c001d20", "object at <hex>"),
        ("commit deadbeef01", "commit <hex>"),
        ("a feedface is no number", "a feedface is no number"),
        ("  two\n lines ", "two lines"),
        ("", ""),
    ],
)
def test_ids_and_numbers_of_a_message_are_replaced(message, expected):
    assert normalised(message) == expected


def test_failures_that_differ_in_ids_and_numbers_have_one_fingerprint():
    first = EventCause("HTTPError", "503 for order 17 at host 10.0.0.7")
    second = EventCause("HTTPError", "503 for order 4711 at host 10.0.12.200", target="mail/7")
    assert first.fingerprint == second.fingerprint != 0


@pytest.mark.parametrize(
    "other", [EventCause("HTTPError", "no route"), EventCause("OSError", "timeout"), NO_CAUSE]
)
def test_other_failures_have_another_fingerprint(other):
    assert EventCause("HTTPError", "timeout").fingerprint != other.fingerprint


def test_a_transition_without_a_failure_has_no_fingerprint():
    assert NO_CAUSE.fingerprint == EventCause(target="mail/7").fingerprint == 0
    assert failure_cause(None) is NO_CAUSE


@given(st.text(max_size=600), st.text(max_size=40))
def test_a_message_is_cut_between_characters(message, kind):
    cause = failure_cause(Failure(kind, message), "NO_CLASS")
    assert len(cause.message.encode()) <= MESSAGE_BYTES_MAX
    assert message.startswith(cause.message)
    assert cause.reason == (kind or "NO_CLASS")
    assert -(2**63) <= cause.fingerprint < 2**63
