"""Handle WaitTasks, and puts that wait for the outcomes of their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits, wire
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.answer_bytes import reserve_answer
from taskraft_service.api.rpc.calls_at_leader import ThisNodeLeads
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.forwarding_metadata import CallOrigin
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import (
    CallRefused,
    error_message,
    task_not_found,
    tube_not_found,
)
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import encode_tasks, with_unique_key
from taskraft_service.api.tasks.selection_checks import check_wait
from taskraft_service.command_codecs.selector import selector_of
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.leader.expected_outcomes import ExpectingPut
from taskraft_service.leader.outcome_waits import OutcomeWaits
from taskraft_service.leader.waited_tasks import OutcomeQuery, OutcomeWait, WaitedTasks
from taskraft_service.limits import CONTENT_BYTES_MAX
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.queue import Queue
from taskraft_service.turns import next_turn

_WAIT_METHOD: Final = "/taskraft.v1.TaskService/WaitTasks"
_WAITED: Final = pb.WaitTasksResponse.TASKS_FIELD_NUMBER
_OUTCOMES: Final = pb.PutTasksResponse.OUTCOMES_FIELD_NUMBER
ENCODED_AT_ONCE: Final = 200
"""Number of tasks after which an answer is encoded further in the next turn; 200 take 2 ms."""


class OutcomeHandlers:
    """The handlers that wait for the outcomes of tasks.

    Args:
        reader: reads the queue.
        outcomes: the waiting calls of this node.
        forwarder: asks the next leader after this node has lost leadership.
    """

    def __init__(self, reader: QueueReader, outcomes: OutcomeWaits, forwarder: Forwarder) -> None:
        self._reader = reader
        self._outcomes = outcomes
        self._forwarder = forwarder

    def wait_tasks_method(self) -> UnaryMethod[pb.WaitTasksRequest]:
        """Return the method WaitTasks; only the leader is notified when a task ends."""
        return UnaryMethod(
            "WaitTasks", pb.WaitTasksRequest, ExecutionSite.LEADER, self.wait_tasks, is_read=True
        )

    async def wait_tasks(self, call: UnaryCall[pb.WaitTasksRequest]) -> bytes:
        """Wait until tasks have ended; after a change of leader, continue on the new leader."""
        request = call.request
        check_wait(request)
        await self._reader.barrier()
        if self._reader.applied.tube(request.tube) is None:
            raise tube_not_found(request.tube)
        selector = selector_of(request.selector)
        assert not isinstance(selector, ByFilter)
        queue = self._reader.queues.queue_of(request.tube)
        found = [
            one if isinstance(one, Refusal) else one.id  # the wait must not keep the contents
            for one in select_with_failed(queue, request.tube, selector)
        ]
        ids = [one for one in found if not isinstance(one, Refusal)]
        check_waited_tasks(self._outcomes.tasks, len(ids), call.caller.name)
        progress = request.until == pb.WaitTasksRequest.PROGRESS
        query = OutcomeQuery(request.tube, ids, request.any, progress, call.caller.name)
        wait = self._outcomes.begin(query)
        wait_seconds = call.wait_seconds(request.wait_ms if request.HasField("wait_ms") else None)
        gone = _ended_without_record(queue, request) if len(ids) < len(found) else {}
        if gone and request.any:
            wait_seconds = 0
        ended = iter(await self._outcomes.finish(wait, wait_seconds))
        views = [None if isinstance(one, Refusal) else next(ended) for one in found]
        kept_bytes = sum([view.content_bytes for view in views if view is not None])
        if wait.exceeded is not None:
            raise _content_overloaded(*wait.exceeded, call.caller.name)
        call.steps.count_content(kept_bytes + wait.dropped_bytes, len(ids))
        await reserve_answer(kept_bytes)
        return await self._encode_waited(call, found, views, gone)

    async def _encode_waited(
        self,
        call: UnaryCall[pb.WaitTasksRequest],
        found: Sequence[int | Refusal],
        views: Sequence[TaskView | None],
        gone: Mapping[int, task_pb2.Task],
    ) -> bytes:
        """Return an encoded WaitTasksResponse, encoded in turns.

        ``found`` has the ids of the tasks before the wait, ``views`` the tasks after it, and
        ``gone`` the tasks without a record by item.
        """
        answer = pb.WaitTasksResponse()
        tube, wall_offset_ms = call.request.tube, self._reader.wall_offset_ms
        parts = []
        for item, (one, view) in enumerate(zip(found, views, strict=True)):
            if (item + 1) % ENCODED_AT_ONCE == 0:
                await next_turn()
            if view is not None:
                shown = with_unique_key(visible_task(view, tube, call.caller))
                parts += encode_tasks([shown], _WAITED, wall_offset_ms, shorten_session=True)
            elif item in gone:
                parts.append(task_element(_WAITED, gone[item]))
            elif isinstance(one, Refusal):
                answer.errors.add(item=item, error=error_message(one))
            else:
                answer.errors.append(task_not_found(item, one))
        return answer.SerializeToString() + b"".join(parts)

    async def put_and_wait(
        self,
        call: UnaryCall[pb.PutTasksRequest],
        put: Callable[
            [UnaryCall[pb.PutTasksRequest], ExpectingPut], Awaitable[pb.PutTasksResponse]
        ],
    ) -> bytes:
        """Put tasks and wait until all of them have ended.

        If leadership is lost during the wait, a request with a request_id is retried on the next
        leader, which recognizes it and continues to wait. A request without a request_id must not
        be retried, so this node asks the next leader for the outcomes.
        """
        request, principal, count = call.request, call.caller.name, len(call.request.tasks)
        check_waited_tasks(self._outcomes.tasks, count, principal)
        until = asyncio.get_running_loop().time() + call.wait_seconds(request.outcome_wait_ms)
        with self._outcomes.expecting(request.tube, count, principal) as expecting:
            answer = await put(call, expecting)
            ids = [task_id for task_id in answer.task_ids if task_id]
            query = OutcomeQuery(request.tube, ids, principal=principal)
            wait = self._outcomes.begin(query, expecting)
        try:
            encoded = await self._finish(wait, until, call.caller)
        except NotProposed:
            if request.request_id:
                raise
            encoded = await self._finish_elsewhere(call, ids, until)
        parts = iter(encoded)
        unknown = task_element(_OUTCOMES, task_pb2.Task(tube=request.tube))
        outcomes = [next(parts) if task_id else unknown for task_id in answer.task_ids]
        return answer.SerializeToString() + b"".join(outcomes)

    async def _finish(self, wait: OutcomeWait, until: float, caller: Caller) -> list[bytes]:
        """Wait on this node; return one outcome per task id, encoded in turns."""
        left = max(until - asyncio.get_running_loop().time(), 0.0)
        views: list[TaskView | None] = await self._outcomes.finish(wait, left)
        tube, content_bytes = wait.query.tube, 0
        parts = []
        for item, (task_id, view) in enumerate(zip(wait.query.ids, views, strict=True)):
            if (item + 1) % ENCODED_AT_ONCE == 0:
                await next_turn()
            if view is None:
                parts.append(task_element(_OUTCOMES, task_pb2.Task(tube=tube, id=task_id)))
                continue
            shown = visible_task(view, tube, caller)
            content_bytes += shown.content_bytes
            if content_bytes > CONTENT_BYTES_MAX:
                shown = shown.without_content()
            parts += encode_tasks(
                [shown], _OUTCOMES, self._reader.wall_offset_ms, shorten_session=True
            )
        return parts

    async def _finish_elsewhere(
        self, call: UnaryCall[pb.PutTasksRequest], ids: Sequence[int], until: float
    ) -> list[bytes]:
        """Ask the next leader for the outcomes; an outcome that it does not know stays open.

        Returns open outcomes, not an error, if no leader answers in time: the put has succeeded,
        and an error would make the caller put the tasks again.
        """
        tube = call.request.tube
        try:
            answer = await self._ask_leader(tube, ids, until, call.caller)
        except (CallRefused, LeaderAnsweredError):
            answer = pb.WaitTasksResponse()
            answer.errors.extend(task_not_found(item, ids[item]) for item in range(len(ids)))
        unknown = {error.item for error in answer.errors}
        found = iter(answer.tasks)
        return [
            task_element(
                _OUTCOMES,
                task_pb2.Task(tube=tube, id=task_id) if item in unknown else next(found),
            )
            for item, task_id in enumerate(ids)
        ]

    async def _ask_leader(
        self, tube: str, ids: Sequence[int], until: float, caller: Caller
    ) -> pb.WaitTasksResponse:
        """Wait for the outcomes on the next leader, which may be this node again.

        Raises:
            CallRefused, LeaderAnsweredError: no leader answered in time.
        """
        loop = asyncio.get_running_loop()
        origin = CallOrigin(caller)
        while True:
            left = max(until - loop.time(), 0.0)
            selector = task_pb2.TaskSelector(ids=ids)
            request = pb.WaitTasksRequest(tube=tube, selector=selector, wait_ms=int(left * 1000))
            raw = request.SerializeToString()
            try:
                found = await self._forwarder.forward(
                    _WAIT_METHOD, raw, None, is_idempotent=lambda: True, origin=origin
                )
            except ThisNodeLeads:
                try:
                    found = await self.wait_tasks(
                        UnaryCall(request, raw, None, caller, loop.time())
                    )
                except NotProposed:
                    continue
            return pb.WaitTasksResponse.FromString(found)


def check_waited_tasks(waited: WaitedTasks, tasks: int, principal: str) -> None:
    """Check that a call of a principal may wait for tasks, before the call has any effect.

    Raises:
        CallRefused: OVERLOADED, too many tasks are waited for by all calls, or by those of the
            principal.
    """
    total, own = waited.count_with(tasks, principal)
    if total > limits.WAITED_TASKS_MAX:
        most = limits.WAITED_TASKS_MAX
        raise _overloaded("all calls", {"limit": "waited_tasks_max", "value": str(most)})
    if own > limits.WAITED_TASKS_SHARE_MAX:
        most = limits.WAITED_TASKS_SHARE_MAX
        metadata = {"limit": "waited_tasks_share_max", "value": str(most), "principal": principal}
        raise _overloaded(f'the calls of principal "{principal}"', metadata)


def _overloaded(whose: str, metadata: Mapping[str, str]) -> CallRefused:
    text = f"{whose} would wait for more than {metadata['value']} tasks; retry later"
    return CallRefused(error_pb2.Error.OVERLOADED, text, metadata)


def _content_overloaded(limit: str, most: int, principal: str) -> CallRefused:
    """Return the refusal of a wait whose outcomes could not be kept with their content."""
    metadata = {"limit": limit, "value": str(most)}
    whose = "this node"
    if limit == "waited_content_bytes_share_max":
        metadata["principal"] = principal
        whose = f'principal "{principal}"'
    text = f"the waiting calls of {whose} have outcomes of {most} bytes; retry, or wait for fewer"
    return CallRefused(error_pb2.Error.OVERLOADED, text, metadata)


def _ended_without_record(
    queue: Queue, request: pb.WaitTasksRequest
) -> Mapping[int, task_pb2.Task]:
    """Return the tasks that were selected by id and are gone without a record, by item."""
    if not request.ended_without_record:
        return {}
    tube = request.tube
    return {
        item: task_pb2.Task(tube=tube, id=task_id, outcome=task_pb2.Task.NOT_KEPT)
        for item, task_id in enumerate(request.selector.ids)
        if queue.was_put(tube, task_id)
    }


def visible_task(view: TaskView, tube: str, caller: Caller) -> TaskView:
    """Return a task of a readable tube with the fields that the caller may see.

    If the task has moved to a tube that the caller may not read, only its tube, id, state and
    outcome are visible.
    """
    if view.tube == tube or caller.may(Verb.READ, view.tube):
        return view
    return view.without_content()


def task_element(field: int, task: task_pb2.Task) -> bytes:
    """Return an encoded task as an element of the repeated field ``field`` of an answer."""
    return wire.length_delimited(field, task.SerializeToString())


def select_with_failed(
    queue: Queue, tube: str, selector: ByIds | ByKeys
) -> list[TaskView | Refusal]:
    """Return the selected tasks of a tube in order, including the records of failed tasks.

    The list has a refusal for each task that is neither in the tube nor recorded as failed. Tasks
    with large payloads have no content.
    """
    found = queue.select_tasks(tube, selector, large=False)
    if not any(isinstance(one, Refusal) for one in found):
        return found
    failed = queue.failed_tasks(tube, selector)
    return [
        removed if isinstance(one, Refusal) and removed is not None else one
        for one, removed in zip(found, failed, strict=True)
    ]
