"""Tubes, counts, groups and schedules are frozen objects with the names of the contract."""

from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta, timezone

import pytest

from taskraft import (
    Group,
    OperationCounts,
    Retry,
    Schedule,
    TaskCounts,
    TransitionCount,
    TubeInfo,
    TubeOptions,
    TubeStatistics,
)
from taskraft._put_options import spec_template
from taskraft.v1 import (
    error_pb2,
    group_service_pb2,
    schedule_service_pb2,
    task_pb2,
    tube_service_pb2,
)

KINDS = {
    TubeInfo: tube_service_pb2.Tube,
    TubeOptions: tube_service_pb2.TubeOptions,
    TubeStatistics: tube_service_pb2.TubeStatistics,
    TaskCounts: tube_service_pb2.TubeStatistics.Tasks,
    OperationCounts: tube_service_pb2.TubeStatistics.Calls,
    TransitionCount: tube_service_pb2.TubeStatistics.Transition,
    Group: group_service_pb2.Group,
    Schedule: schedule_service_pb2.Schedule,
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_of_the_contract_is_missing(kind):
    names = {field.name for field in fields(kind)} - {"message"}
    assert names == {field.name for field in KINDS[kind].DESCRIPTOR.fields}


def test_a_tube_has_names_numbers_and_a_retry_policy():
    options = tube_service_pb2.TubeOptions(
        priority_order="HIGHER_FIRST",
        ttl_ms=5_000,
        retry=task_pb2.RetryPolicy(
            attempts_max=3,
            backoff_ms=1_500,
            factor_percent=150,
            backoff_ms_max=60_000,
            jitter_percent=20,
            exhausted="DEAD_LETTER",
            position="FRONT",
        ),
        subqueue_weights={"a": 2},
    )
    message = tube_service_pb2.Tube(name="mail", kind="UTUBETTL", options=options, created_ms=1_500)
    tube = TubeInfo.of(message)
    assert (tube.kind, tube.options.priority_order) == ("utubettl", "higher_first")
    assert (tube.options.ttl_ms, tube.options.ttr_ms) == (5_000, None)
    assert (tube.options.subqueue_concurrency, tube.options.dead_letter_tube) == (1, "")
    assert tube.options.subqueue_weights == {"a": 2}
    assert tube.created == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert tube.message == message
    retry = tube.options.retry
    assert retry == Retry(
        attempts_max=3,
        backoff=1.5,
        factor=1.5,
        backoff_max=60,
        jitter=0.2,
        exhausted="dead_letter",
        position="front",
    )
    assert retry.message() == options.retry
    with pytest.raises(FrozenInstanceError):
        tube.name = "other"


def test_a_value_that_this_client_does_not_know_is_shown_as_its_number():
    assert TubeInfo.of(tube_service_pb2.Tube(kind=99)).kind == "99"


def test_transitions_name_their_states():
    counts = tube_service_pb2.TubeStatistics(
        tube="mail", transitions=[{"to_state": "READY", "count": 3, "crossing": True}]
    )
    (transition,) = TubeStatistics.of(counts).transitions
    assert (transition.from_state, transition.to_state) == ("", "READY")
    assert (transition.count, transition.crossing) == (3, True)


def test_the_error_of_a_group_is_an_exception():
    message = group_service_pb2.Group(
        state="ENDED",
        end_task={"tube": "books", "spec": {"payload": b"bind"}},
        last_error={"reason": error_pb2.Error.TUBE_NOT_FOUND, "message": "no tube books"},
    )
    group = Group.of(message)
    assert (group.state, group.ended, group.abort_task) == ("ENDED", None, None)
    assert (group.end_task.tube, group.end_task.payload) == ("books", b"bind")
    assert (group.last_error.reason, group.last_error.message) == (
        "TUBE_NOT_FOUND",
        "no tube books",
    )
    assert Group.of(group_service_pb2.Group()).last_error is None


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=30))])
def test_a_put_takes_an_absolute_time_in_any_time_zone(zone):
    at = datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC).astimezone(zone)
    assert spec_template({"visible_at": at}, "t").visible_at_ms == 1_893_553_445_678


@pytest.mark.parametrize(
    ("at", "error"),
    [(datetime(2030, 1, 2), ValueError), (1_893_553_445_678, TypeError)],  # noqa: DTZ001 - to be refused
)
def test_an_absolute_time_needs_a_time_zone(at, error):
    with pytest.raises(error, match="a datetime with a time zone"):
        spec_template({"visible_at": at}, "t")


def test_absent_counts_of_all_tubes_are_one_object():
    first, second, counted = (
        TubeStatistics.of(message)
        for message in (
            tube_service_pb2.TubeStatistics(tube="a"),
            tube_service_pb2.TubeStatistics(tube="b"),
            tube_service_pb2.TubeStatistics(calls=tube_service_pb2.TubeStatistics.Calls(put=3)),
        )
    )
    assert first.calls is second.calls
    assert {getattr(first.calls, field.name) for field in fields(OperationCounts)} == {0}
    assert counted.calls.put == 3
