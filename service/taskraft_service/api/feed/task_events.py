"""Handle GetTaskEvents: follow one task back through the events that this node has applied."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service.api.feed.answers import event_message
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import CallRefused, tube_not_found
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.queue.entities.instants import in_wall_time
from taskraft_service.queue.entities.task_state import GONE
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.feed.task_trail import TaskTrail
from taskraft_service.turns import next_turn

EVENTS_MAX: Final = 100


class TaskEventsHandler:
    """The handler of GetTaskEvents."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    def method(self) -> AnyUnaryMethod:
        """Return the method GetTaskEvents with its handler."""
        return UnaryMethod(
            "GetTaskEvents", pb.GetTaskEventsRequest, ExecutionSite.ANY_NODE, self.get_task_events
        )

    async def get_task_events(
        self, call: UnaryCall[pb.GetTaskEventsRequest]
    ) -> pb.GetTaskEventsResponse:
        """Return the events of a task; other work runs between two steps of the search.

        Raises:
            CallRefused: TASK_NOT_FOUND, or INVALID_FIELD.
        """
        request = call.request
        violations = Violations()
        violations.check_tube("tube", request.tube)
        violations.check_not_negative("task_id", request.task_id)
        violations.check_range("events_max", request.events_max, 0, EVENTS_MAX)
        violations.check_not_negative("before_ms", request.before_ms)
        violations.raise_if_any()
        response = pb.GetTaskEventsResponse(now_ms=self._reader.wall_now_ms())
        trail = self._trail(request)
        if trail is None:  # the tasks of temporary tubes have no events
            return response
        for step in trail.steps():
            if step is None:
                await next_turn()
                continue
            response.events.append(event_message(*step))
            if len(response.events) == (request.events_max or EVENTS_MAX):
                break
        if not response.events and self._task(request) is None:
            raise _not_found(request)
        response.complete = trail.is_complete
        response.begins_ms = trail.begins_ms
        return response

    def _trail(self, request: pb.GetTaskEventsRequest) -> TaskTrail | None:
        """Return the trail of the requested task; None if the tube has no events."""
        queue = self._reader.queues.queue_of(request.tube)
        task, number = self._task(request), queue.tube_number(request.tube)
        is_logged = self._reader.queues.is_logged(request.tube)
        if number is None:
            raise tube_not_found(request.tube)
        if task is None and not is_logged:
            raise _not_found(request)
        if not is_logged:
            return None
        if task is None:
            state, since_ms, before_ms = GONE, None, request.before_ms
        else:
            state, before_ms = task.state, 0
            since_ms = in_wall_time(task.since_ms, queue.wall_offset_ms)
        return TaskTrail(
            queue.feed, request.tube, number, request.task_id, state, since_ms, before_ms
        )

    def _task(self, request: pb.GetTaskEventsRequest) -> TaskView | None:
        queue = self._reader.queues.queue_of(request.tube)
        (task,) = queue.get_tasks(request.tube, [request.task_id])
        return task


def _not_found(request: pb.GetTaskEventsRequest) -> CallRefused:
    return CallRefused(
        error_pb2.Error.TASK_NOT_FOUND,
        f"the tube has no task {request.task_id}, and the events that were searched name none",
        {"tube": request.tube, "task_id": str(request.task_id)},
    )
