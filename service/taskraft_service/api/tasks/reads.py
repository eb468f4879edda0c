"""Handle GetTasks and ListTasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import error_message, tube_not_found
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import encode_tasks, with_unique_key
from taskraft_service.api.tasks.listing import read_task_page
from taskraft_service.api.tasks.selection_checks import check_get, check_list
from taskraft_service.command_codecs.selector import selector_of
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.queue.entities.filter import ByFilter
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_view import TaskView

_SHOWN: Final = pb.GetTasksResponse.TASKS_FIELD_NUMBER
_FAILED: Final = pb.GetTasksResponse.FAILED_FIELD_NUMBER
assert pb.ListTasksResponse.TASKS_FIELD_NUMBER == _SHOWN


class TaskReadHandlers:
    """The handlers of GetTasks and ListTasks.

    Args:
        reader: reads the queue.
        unlogged_calls: counts reads of tasks.
    """

    def __init__(self, reader: QueueReader, unlogged_calls: UnloggedCalls) -> None:
        self._reader = reader
        self._unlogged_calls = unlogged_calls

    def methods(self) -> Sequence[AnyUnaryMethod]:
        """Return the methods GetTasks and ListTasks."""
        return (
            UnaryMethod(
                "GetTasks",
                pb.GetTasksRequest,
                ExecutionSite.BY_CONSISTENCY,
                self.get_tasks,
                self._can_read_here,
            ),
            UnaryMethod(
                "ListTasks",
                pb.ListTasksRequest,
                ExecutionSite.BY_CONSISTENCY,
                self.list_tasks,
                self._can_read_here,
            ),
        )

    def _can_read_here(self, request: pb.GetTasksRequest | pb.ListTasksRequest) -> bool:
        return self._reader.can_read_here(request.consistency, [request.tube])

    async def get_tasks(self, call: UnaryCall[pb.GetTasksRequest]) -> bytes:
        """Return the selected tasks, with records of failed tasks that were removed."""
        request = call.request
        check_get(request)
        queue = await self._reader.queue(request.consistency)
        if queue.tube(request.tube) is None:
            raise tube_not_found(request.tube)
        selector = selector_of(request.selector)
        assert not isinstance(selector, ByFilter)
        queue = self._reader.queues.queue_of(request.tube)
        found = queue.select_tasks(request.tube, selector)
        answer = pb.GetTasksResponse(revision=queue.applied_index, now_ms=self._reader.now_ms())
        shown: list[TaskView] = []
        for item, one in enumerate(found):
            if isinstance(one, Refusal):
                answer.errors.add(item=item, error=error_message(one))
            else:
                shown.append(one)
        self._unlogged_calls.count_peeks(
            request.tube, len(shown), payload_omit=request.payload_omit
        )
        failed: list[TaskView] = []
        if answer.errors:
            gone = queue.failed_tasks(request.tube, selector)
            failed = [with_unique_key(view) for view in gone if view is not None]
        return b"".join(
            (
                answer.SerializeToString(),
                _encode(shown, payload_omit=request.payload_omit),
                *encode_tasks(failed, _FAILED),
            )
        )

    async def list_tasks(self, call: UnaryCall[pb.ListTasksRequest]) -> bytes:
        """Return a page of the tasks of a tube."""
        request = call.request
        check_list(request)
        queue = await self._reader.queue(request.consistency)
        tube = queue.tube(request.tube)
        if tube is None:
            raise tube_not_found(request.tube)
        page = await read_task_page(self._reader, tube, request)
        answer = pb.ListTasksResponse(
            next_page_token=page.next_token, revision=page.revision, now_ms=page.now_ms
        )
        return answer.SerializeToString() + _encode(page.tasks, payload_omit=request.payload_omit)


def _encode(views: Sequence[TaskView], *, payload_omit: bool) -> bytes:
    encoded = encode_tasks(views, _SHOWN, payload_omit=payload_omit, shorten_session=True)
    return b"".join(encoded)
