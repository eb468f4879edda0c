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


def test_everything_is_granted_at_first_and_half_of_it_is_worth_a_message_later():
    credit = Credit(4)
    assert credit.grant(is_convenient=False) == (4, 0)
    for token in range(1, 5):
        credit.hold(task(token))
    assert credit.grant(is_convenient=True) is None
    credit.drop(1)
    assert credit.grant(is_convenient=False) is None
    credit.drop(2)
    assert credit.grant(is_convenient=False) == (2, 0)


def test_a_single_task_of_credit_is_granted_with_a_message_that_leaves_anyhow():
    credit = Credit(4)
    credit.grant(is_convenient=True)
    credit.hold(task(1))
    credit.drop(1)
    assert credit.grant(is_convenient=False) is None
    assert credit.grant(is_convenient=True) == (1, 0)


def test_on_a_new_stream_only_what_is_not_held_is_granted():
    credit = Credit(4)
    credit.grant(is_convenient=True)
    credit.hold(task(1))
    credit.restart()
    assert credit.grant(is_convenient=True) == (3, 0)


def test_bytes_come_back_when_their_tasks_are_settled():
    credit = Credit(10, bytes_max=100)
    assert credit.grant(is_convenient=True) == (10, 100)
    credit.hold(task(1, size=150))
    assert credit.grant(is_convenient=True) is None
    credit.drop(1)
    assert credit.grant(is_convenient=True) == (1, 150)


def test_a_stream_whose_bytes_are_used_up_does_not_begin_without_a_limit():
    """A first grant of 0 bytes would mean "no byte limit"."""
    credit = Credit(10, bytes_max=100)
    credit.grant(is_convenient=True)
    credit.hold(task(1, size=100))
    credit.restart()
    assert credit.grant(is_convenient=True) is None
    credit.drop(1)
    assert credit.grant(is_convenient=True) == (10, 100)


def test_leases_that_ended_by_themselves_are_given_up():
    credit = Credit(4)
    credit.hold(task(1, lease_until_ms=50))
    credit.hold(task(2, lease_until_ms=150))
    credit.hold(task(3))
    assert [each.token for each in credit.expired(100)] == [1]
    assert list(credit.held) == [2, 3]


def test_leases_that_the_server_does_not_know_are_given_up():
    credit = Credit(4)
    credit.hold(task(1))
    credit.hold(task(2))
    assert [each.token for each in credit.missing_from([2, 9])] == [1]


def test_what_a_waiting_handler_lends_is_granted_at_once_and_counts_again_afterwards():
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


def test_a_lent_task_that_is_settled_is_lent_no_more():
    credit = Credit(1)
    credit.grant(is_convenient=True)
    credit.hold(task(1))
    credit.handler_waits(1)
    credit.drop(1)
    credit.handler_resumes(1)
    assert credit.grant(is_convenient=True) == (1, 0)
    assert credit.grant(is_convenient=True) is None


def test_no_more_tasks_are_lent_than_the_limit(monkeypatch):
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
