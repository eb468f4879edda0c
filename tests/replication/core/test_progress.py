"""The match index only grows, and appends stay within the in-flight window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_replication.core.inflights import Inflights
from taskraft_replication.core.progress import Progress, ProgressState


def progress(match=0, next_index=1, *, messages_max=3, bytes_max=100):
    return Progress(
        match=match,
        next_index=next_index,
        inflights=Inflights(messages_max, bytes_max),
        recent_active=True,
    )


def test_a_window_is_full_at_its_limit_of_messages():
    window = Inflights(2, 1000)
    window.add(1, 10)
    assert not window.full
    window.add(2, 10)
    assert window.full
    with pytest.raises(AssertionError):
        window.add(3, 10)


def test_a_window_is_full_after_the_message_that_crosses_its_limit_of_bytes():
    window = Inflights(1000, 20)
    window.add(1, 19)
    assert not window.full
    window.add(2, 500)
    assert window.full
    window.free_up_to(1)
    assert window.full
    window.free_up_to(2)
    assert not window.full
    assert window.payload_bytes == 0


def test_a_partial_acknowledgement_does_not_free_a_message():
    window = Inflights(2, 1000)
    window.add(5, 1)
    window.add(9, 1)
    window.free_up_to(8)
    assert len(window) == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 50)), max_size=60))
def test_a_window_behaves_like_a_list(operations):
    window, model, last = Inflights(5, 100), [], 0
    for is_add, number, size in operations:
        if is_add and not window.full:
            last += 1 + number % 3
            window.add(last, size)
            model.append((last, size))
        else:
            window.free_up_to(number)
            model = [item for item in model if item[0] > number]
        assert len(window) == len(model)
        assert window.payload_bytes == sum(size for _, size in model)
        assert window.full == (len(model) >= 5 or window.payload_bytes >= 100)


def test_an_old_acknowledgement_is_ignored():
    each = progress(5, 6)
    assert each.acknowledge(7)
    assert (each.match, each.next) == (7, 8)
    assert not each.acknowledge(7)
    assert not each.acknowledge(3)
    assert (each.match, each.next) == (7, 8)


def test_an_old_rejection_is_ignored_while_replicating():
    each = progress(5, 6)
    each.become_replicate()
    each.sent(3, 10, 0)
    assert each.next == 9
    assert not each.reject(5, 2)
    assert each.next == 9
    assert each.reject(8, 2)
    assert each.next == 6


def test_a_probe_accepts_only_the_answer_to_its_last_message():
    each = progress(0, 10)
    each.sent(1, 1, 0)
    assert each.paused
    assert not each.reject(8, 2)
    assert each.paused
    assert each.reject(9, 4)
    assert (each.next, each.paused) == (5, False)
    assert each.reject(4, 99)
    assert each.next == 4


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_rejection_never_goes_below_the_match_index(match, rejected, hint):
    for state in (ProgressState.PROBE, ProgressState.REPLICATE):
        each = progress(match, match + 8)
        if state is ProgressState.REPLICATE:
            each.become_replicate()
        each.reject(rejected, hint)
        assert each.next > each.match == match


def test_a_probe_continues_behind_the_snapshot_that_was_sent():
    each = progress(3, 4)
    each.become_snapshot(10)
    assert each.paused
    assert (each.next, each.pending_snapshot) == (11, 10)
    each.become_probe()
    assert (each.state, each.next, each.pending_snapshot) == (ProgressState.PROBE, 11, 0)


def test_sending_continues_behind_the_match_index_if_the_snapshot_was_not_needed():
    each = progress(3, 4)
    each.become_snapshot(10)
    assert each.acknowledge(7)
    each.become_probe()
    each.become_replicate()
    assert (each.state, each.next) == (ProgressState.REPLICATE, 8)


def test_a_failed_snapshot_starts_over():
    each = progress(3, 4)
    each.become_snapshot(10)
    each.pending_snapshot = 0
    each.become_probe()
    assert each.next == 4


def test_a_commit_index_is_sent_once():
    each = progress(5, 6)
    each.become_replicate()
    assert each.can_bump_commit(3)
    each.sent(0, 0, 3)
    assert not each.can_bump_commit(3)
    each.sent(0, 0, 5)
    assert not each.can_bump_commit(9), "all sent entries are known to be committed"


def test_a_change_of_state_clears_the_window():
    each = progress(5, 6)
    each.become_replicate()
    for _ in range(3):
        each.sent(1, 1, 0)
    assert each.paused
    each.become_probe()
    assert (each.paused, len(each.inflights), each.next) == (False, 0, 6)
