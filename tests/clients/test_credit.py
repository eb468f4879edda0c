"""The credit that a subscription grants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft import _credit
from taskraft._credit import Credit
from taskraft._task import Task
from taskraft.v1 import task_pb2


def task(token, size=0, lease_until_ms=0):
    spec = task_pb2.TaskSpec(payload=b"x" * size)
    return Task(task_pb2.Task(token=token, spec=spec, lease_until_ms=lease_until_ms))


def test_the_first_grant_is_the_limit_and_later_grants_wait_for_half_of_it():
    credit = Credit(4)
    assert credit.grant(is_convenient=False) == (4, 0)
    for token in range(1, 5):
        credit.hold(task(token))
    assert credit.grant(is_convenient=True) is None
    credit.drop(1)
    assert credit.grant(is_convenient=False) is None
    credit.drop(2)
    assert credit.grant(is_convenient=False) == (2, 0)


def test_a_single_task_of_credit_is_granted_with_the_next_message():
    credit = Credit(4)
    credit.grant(is_convenient=True)
    credit.hold(task(1))
    credit.drop(1)
    assert credit.grant(is_convenient=False) is None
    assert credit.grant(is_convenient=True) == (1, 0)


def test_a_new_stream_gets_credit_only_for_tasks_that_are_not_held():
    credit = Credit(4)
    credit.grant(is_convenient=True)
    credit.hold(task(1))
    credit.restart()
    assert credit.grant(is_convenient=True) == (3, 0)


def test_settled_tasks_free_their_bytes():
    credit = Credit(10, bytes_max=100)
    assert credit.grant(is_convenient=True) == (10, 100)
    credit.hold(task(1, size=150))
    assert credit.grant(is_convenient=True) is None
    credit.drop(1)
    assert credit.grant(is_convenient=True) == (1, 150)


def test_a_new_stream_without_free_bytes_gets_no_grant():
    """A first grant of 0 bytes would mean "no byte limit"."""
    credit = Credit(10, bytes_max=100)
    credit.grant(is_convenient=True)
    credit.hold(task(1, size=100))
    credit.restart()
    assert credit.grant(is_convenient=True) is None
    credit.drop(1)
    assert credit.grant(is_convenient=True) == (10, 100)


def test_expired_leases_are_dropped():
    credit = Credit(4)
    credit.hold(task(1, lease_until_ms=50))
    credit.hold(task(2, lease_until_ms=150))
    credit.hold(task(3))
    assert [each.token for each in credit.expired(100)] == [1]
    assert list(credit.held) == [2, 3]


def test_leases_that_the_server_does_not_know_are_dropped():
    credit = Credit(4)
    credit.hold(task(1))
    credit.hold(task(2))
    assert [each.token for each in credit.missing_from([2, 9])] == [1]


def test_a_task_with_a_waiting_handler_does_not_count_towards_the_limit():
    credit = Credit(3, bytes_max=30)
    credit.grant(is_convenient=True)
    for token in (1, 2, 3):
        credit.hold(task(token, size=10))
    credit.handler_waits(1)
    credit.handler_waits(1)
    assert credit.grant(is_convenient=False) == (1, 10)
    credit.hold(task(4, size=10))
    credit.handler_resumes(1)
    credit.drop(4)
    assert credit.grant(is_convenient=True) == (1, 10), "another part of the handler still waits"
    credit.hold(task(5, size=10))
    credit.handler_resumes(1)
    credit.drop(5)
    assert credit.grant(is_convenient=True) is None


def test_settling_a_task_ends_the_wait_of_its_handler():
    credit = Credit(1)
    credit.grant(is_convenient=True)
    credit.hold(task(1))
    credit.handler_waits(1)
    credit.drop(1)
    credit.handler_resumes(1)
    assert credit.grant(is_convenient=True) == (1, 0)
    assert credit.grant(is_convenient=True) is None


def test_the_number_of_waiting_handlers_is_limited(monkeypatch):
    monkeypatch.setattr(_credit, "WAITING_HANDLERS_MAX", 1)
    credit = Credit(2)
    credit.grant(is_convenient=True)
    for token in (1, 2):
        credit.hold(task(token))
        credit.handler_waits(token)
    assert credit.grant(is_convenient=True) == (1, 0)


@pytest.mark.parametrize("tasks_max", [0, -1, 100_001])
def test_credit_beyond_the_contract_is_refused(tasks_max):
    with pytest.raises(ValueError, match="credit"):
        Credit(tasks_max)


@given(
    limit=st.integers(1, 20),
    steps=st.lists(st.sampled_from(["grant", "send", "settle", "restart"]), max_size=60),
)
def test_held_and_granted_are_never_more_than_the_limit(limit, steps):
    credit = Credit(limit)
    open_at_server, token = 0, 0
    for step in steps:
        if step == "grant":
            granted = credit.grant(is_convenient=True)
            open_at_server += granted[0] if granted else 0
        elif step == "send" and open_at_server:
            token += 1
            open_at_server -= 1
            credit.hold(task(token))
        elif step == "settle" and credit.held:
            credit.drop(next(iter(credit.held)))
        elif step == "restart":
            open_at_server = 0
            credit.restart()
        assert len(credit.held) + open_at_server <= limit
