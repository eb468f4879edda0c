"""Answers contain the durations and the instants of each task."""

import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.tasks.answers import encode_tasks, finite
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Extras, TaskView


@pytest.mark.parametrize(
    ("duration_ms", "shown_ms"),
    [(0, 0), (1, 1), (FOREVER_MS - 1, FOREVER_MS - 1), (FOREVER_MS, 0), (FOREVER_MS + 1, 0)],
)
def test_a_duration_without_limit_is_left_out(duration_ms, shown_ms):
    assert finite(duration_ms) == shown_ms


def test_a_task_shows_its_retention_and_leaves_out_unlimited_times():
    extras = Extras(retain_until_ms=77)
    times = (0, 0, 1, 5, 6, 0, 0)
    view = TaskView("t", 3, b"", State.ZOMBIE, *times, "", 0, FOREVER_MS, 9, extras)
    field = pb.TakeTasksResponse.TASKS_FIELD_NUMBER
    (task,) = pb.TakeTasksResponse.FromString(b"".join(encode_tasks([view], field, 0))).tasks
    assert (task.id, task.attempt, task.since_ms) == (3, 1, 6)
    assert task.retain_until_ms == 77
    assert (task.ttr_ms, task.ttl_ms) == (0, 9)
