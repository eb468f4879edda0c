"""Counts of failures by tube and fingerprint, and their bounds."""

from taskraft_service.machine import failure_counts
from taskraft_service.machine.failure_counts import (
    FINGERPRINTS_MAX,
    HOUR_MS,
    HOURS,
    OTHERS,
    TUBES_MAX,
    FailureCounts,
)
from taskraft_service.queue.feed.failure_events import FailureEvent

NOW_MS = 500_000 * HOUR_MS + 7
"""An instant shortly after a full hour."""


def failure(fingerprint=1, at_ms=NOW_MS, tube="mail", task_id=1, **fields):
    found = {"reason": "Timeout", "message": f"no answer from {task_id}", "is_given_up": False}
    return FailureEvent(
        at_ms=at_ms, tube=tube, task_id=task_id, fingerprint=fingerprint, **{**found, **fields}
    )


def counted(*events, since_ms=0):
    counts = FailureCounts()
    counts.clear(since_ms)
    for event in events:
        counts.add(event)
    return counts


def rows_of(counts, tube="mail"):
    return {row.fingerprint: row for row in counts.tube(tube).rows()}


def test_a_row_has_the_first_and_the_last_failure_and_an_example():
    counts = counted(
        failure(at_ms=NOW_MS + 5, task_id=3),
        failure(at_ms=NOW_MS, task_id=2, is_given_up=True),
        failure(at_ms=NOW_MS + 9, task_id=4, message="ünreachable 4"),
        failure(fingerprint=-5, reason="KeyError"),
    )
    row = rows_of(counts)[1]
    assert (row.count, row.given_up) == (3, 1)
    assert (row.first_ms, row.last_ms) == (NOW_MS, NOW_MS + 9)
    assert (row.task_id, row.message.decode(), row.reason) == (4, "ünreachable 4", b"Timeout")
    assert [row.fingerprint for row in counts.tube("mail").rows()] == [-5, 1]


def test_failures_are_counted_by_hour():
    counts = counted(
        failure(at_ms=NOW_MS - 30 * HOUR_MS),
        failure(at_ms=NOW_MS - 23 * HOUR_MS),
        failure(at_ms=NOW_MS - 2 * HOUR_MS),
        failure(at_ms=NOW_MS),
        failure(at_ms=NOW_MS - 2 * HOUR_MS),
        failure(at_ms=NOW_MS - 24 * HOUR_MS),  # read late, and out of the hours that are kept
    )
    row = rows_of(counts)[1]
    assert row.hours(NOW_MS) == [1, *[0] * 20, 2, 0, 1]
    assert row.hours(NOW_MS + 2 * HOUR_MS) == [*[0] * 19, 2, 0, 1, 0, 0]
    assert row.hours(NOW_MS + 40 * HOUR_MS) == [0] * HOURS
    assert row.count == 6


def test_a_tube_has_a_bounded_number_of_rows_and_one_for_the_others():
    events = [failure(number, task_id=number) for number in range(1, FINGERPRINTS_MAX + 4)]
    counts = counted(*events, failure(1, at_ms=NOW_MS + 1))
    rows = rows_of(counts)
    assert len(rows) == FINGERPRINTS_MAX + 1
    assert rows[OTHERS].count == 3
    assert rows[OTHERS].task_id == FINGERPRINTS_MAX + 3
    assert rows[1].count == 2
    assert sum(row.count for row in rows.values()) == len(events) + 1


def test_a_row_without_failures_for_a_day_makes_room():
    events = [failure(number) for number in range(1, FINGERPRINTS_MAX + 1)]
    counts = counted(*events, failure(1, at_ms=NOW_MS + HOUR_MS))
    counts.add(failure(-1, at_ms=NOW_MS + HOURS * HOUR_MS, task_id=9))
    rows = rows_of(counts)
    assert -1 in rows
    assert 1 in rows
    assert 2 not in rows
    assert (rows[OTHERS].count, rows[OTHERS].first_ms) == (1, NOW_MS)
    assert rows[OTHERS].hours(NOW_MS) == [*[0] * 23, 1]


def test_the_tube_that_failed_least_recently_is_dropped():
    counts = counted(
        *(failure(at_ms=NOW_MS + number, tube=f"t{number}") for number in range(TUBES_MAX)),
        failure(at_ms=NOW_MS + 900, tube="t0"),
        failure(at_ms=NOW_MS + 901, tube="new"),
    )
    assert counts.tube("t1") is None
    assert (counts.tube("t0").since_ms, counts.tube("new").since_ms) == (0, 0)
    counts.add(failure(at_ms=NOW_MS + 902, tube="t1"))
    assert counts.tube("t2") is None
    assert counts.tube("t1").since_ms == NOW_MS + 2
    assert len(counts.tube_names()) == TUBES_MAX


def test_all_tubes_together_have_a_bounded_number_of_rows(monkeypatch):
    monkeypatch.setattr(failure_counts, "ROWS_MAX", 3)
    counts = counted(
        failure(1, tube="a"), failure(2, tube="a"), failure(1, tube="b"), failure(1, tube="c")
    )
    assert counts.tube_names() == ["b", "c"]


def test_failures_before_the_beginning_are_ignored():
    counts = counted(failure(at_ms=NOW_MS - 1), failure(at_ms=NOW_MS), since_ms=NOW_MS)
    assert rows_of(counts)[1].count == 1
    counts.clear(NOW_MS + 1)
    assert counts.tube("mail") is None
