"""Handle GetTasks, ListTasks and CountTasks.

A page token of ListTasks holds the position where the previous page ended, and the last task id
that existed at the first page. A walk through all pages returns each task that existed at its
start, and still exists, exactly once, and it ends even if tasks are put all the time. In take
order, this holds only for tasks whose order keys do not change during the walk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.answer_bytes import reserve_answer
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import (
    key_of_token,
    list_fingerprint,
    page_token_refused,
    token_after,
)
from taskraft_service.api.rpc.status import error_message, tube_not_found
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import encode_tasks, with_unique_key
from taskraft_service.api.tasks.selection_checks import (
    ID_DESCENDING,
    KICK_ORDER,
    TAKE_ORDER,
    check_count,
    check_get,
    check_list,
)
from taskraft_service.command_codecs.selector import selector_of
from taskraft_service.languages.filter_text import read_filter
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.limits import (
    HEADERS_BYTES_MAX,
    LIST_BYTES_MAX,
    LIST_SCAN_MAX,
    LIST_SLICE_MAX,
    TASKS_PAGE_SIZE_DEFAULT,
)
from taskraft_service.queue.entities.filter import scanned_tasks
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube_options import TubeView
from taskraft_service.queue.operations.selection import ByFilter, at_most
from taskraft_service.queue.reading.task_listing import Listing, Passed, Rest, Window
from taskraft_service.turns import next_turn

_SHOWN: Final = pb.GetTasksResponse.TASKS_FIELD_NUMBER
_FAILED: Final = pb.GetTasksResponse.FAILED_FIELD_NUMBER
assert pb.ListTasksResponse.TASKS_FIELD_NUMBER == _SHOWN
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class TaskReadHandlers:
    """The handlers of GetTasks, ListTasks and CountTasks.

    Args:
        reader: reads the queue.
        unlogged_calls: counts reads of tasks.
    """

    def __init__(self, reader: QueueReader, unlogged_calls: UnloggedCalls) -> None:
        self._reader = reader
        self._unlogged_calls = unlogged_calls

    def methods(self) -> Sequence[AnyUnaryMethod]:
        """Return the methods GetTasks, ListTasks and CountTasks."""
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
            UnaryMethod(
                "CountTasks",
                pb.CountTasksRequest,
                ExecutionSite.BY_CONSISTENCY,
                self.count_tasks,
                self._can_read_here,
            ),
        )

    def _can_read_here(
        self, request: pb.GetTasksRequest | pb.ListTasksRequest | pb.CountTasksRequest
    ) -> bool:
        return self._reader.can_read_here(request.consistency, request.tube)

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
        content_bytes, tasks = queue.content_bytes(request.tube, selector), at_most(selector)
        call.steps.count_content(content_bytes, tasks)
        shown_bytes = 0 if request.payload_omit else content_bytes
        await reserve_answer(shown_bytes + tasks * HEADERS_BYTES_MAX)
        queue = self._reader.queues.queue_of(request.tube)
        if queue.tube(request.tube) is None:
            raise tube_not_found(request.tube)
        found = queue.select_tasks(request.tube, selector)
        answer = pb.GetTasksResponse(
            revision=queue.applied_index, now_ms=self._reader.wall_now_ms()
        )
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
                self._encode(shown, payload_omit=request.payload_omit),
                *encode_tasks(failed, _FAILED, self._reader.wall_offset_ms),
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
        await reserve_answer(LIST_BYTES_MAX)
        page = await read_task_page(self._reader, tube, request)
        answer = pb.ListTasksResponse(
            next_page_token=page.next_token,
            revision=page.revision,
            now_ms=page.now_ms + self._reader.wall_offset_ms,
        )
        tasks = self._encode(page.tasks, payload_omit=request.payload_omit)
        return answer.SerializeToString() + tasks

    async def count_tasks(self, call: UnaryCall[pb.CountTasksRequest]) -> pb.CountTasksResponse:
        """Count the matching tasks of the next part of a tube, in slices.

        Raises:
            CallRefused: the token belongs to another count.
        """
        request = call.request
        check_count(request)
        queue = await self._reader.queue(request.consistency)
        tube = queue.tube(request.tube)
        if tube is None:
            raise tube_not_found(request.tube)
        answer = pb.CountTasksResponse(now_ms=self._reader.wall_now_ms())
        mark = list_fingerprint("count", tube.name, str(tube.created_ms), request.filter)
        chosen, now_ms = read_filter(request.filter), self._reader.now_ms()
        rest = Window(0, self._reader.queues.queue_of(tube.name).last_id(tube.name))
        if request.page_token:
            found = _rest(request.page_token, mark, by_place=False)
            assert isinstance(found, Window)
            rest = found
        slice_max = scanned_tasks(LIST_SLICE_MAX, chosen)
        for _ in range(LIST_SCAN_MAX // LIST_SLICE_MAX):
            held = self._reader.queues.queue_of(tube.name)
            counted = held.count_tasks(tube.name, chosen, now_ms, slice_max, rest)
            answer.count += counted.matches
            answer.examined += counted.examined
            rest = counted.rest
            if rest.is_empty:
                break
            await next_turn()
        answer.revision = self._reader.applied.applied_index
        answer.next_page_token = "" if rest.is_empty else token_after(_text(rest, mark))
        return answer

    def _encode(self, views: Sequence[TaskView], *, payload_omit: bool) -> bytes:
        wall_offset_ms = self._reader.wall_offset_ms
        return b"".join(
            encode_tasks(
                views, _SHOWN, wall_offset_ms, payload_omit=payload_omit, shorten_session=True
            )
        )


@dataclass(slots=True)
class TaskPage:
    """A page of tasks with its revision and cluster time, and the token of the next page."""

    tasks: list[TaskView]
    next_token: str
    revision: int
    now_ms: int


async def read_task_page(
    reader: QueueReader, tube: TubeView, request: pb.ListTasksRequest
) -> TaskPage:
    """Return the page of a checked request.

    The tasks are scanned in slices, so that the event loop can run other work. A page may hold
    fewer tasks than requested, even none, without being the last page, because a page scans at most
    ``LIST_SCAN_MAX`` tasks, and fewer with a filter of many comparisons.

    Raises:
        CallRefused: the token belongs to another list.
    """
    # The creation time distinguishes a tube from an earlier tube of the same name.
    mark = list_fingerprint(tube.name, str(tube.created_ms), request.filter, request.order_by)
    queue = reader.applied
    kicking = request.order_by == KICK_ORDER
    by_place = kicking or request.order_by == TAKE_ORDER
    last_id = reader.queues.queue_of(tube.name).last_id(tube.name)
    rest: Rest = Passed((), last_id) if by_place else Window(0, last_id)
    if request.page_token:
        rest = _rest(request.page_token, mark, by_place=by_place)
    descending = request.order_by == ID_DESCENDING
    size = request.page_size or TASKS_PAGE_SIZE_DEFAULT
    chosen, now_ms = read_filter(request.filter), reader.now_ms()
    tasks: list[TaskView] = []
    bytes_left = LIST_BYTES_MAX
    slice_max = scanned_tasks(LIST_SLICE_MAX, chosen)
    for _ in range(LIST_SCAN_MAX // LIST_SLICE_MAX):
        queue = reader.applied
        left = size - len(tasks)
        listing = Listing(chosen, now_ms, descending, left, bytes_left, slice_max, kicking)
        found = reader.queues.queue_of(tube.name).scan_tasks(tube.name, listing, rest)
        tasks += found.tasks
        bytes_left -= sum(task.content_bytes for task in found.tasks)
        rest = found.rest
        if rest.is_empty or len(tasks) >= size or bytes_left <= 0:
            break
        await next_turn()
    token = "" if rest.is_empty else token_after(_text(rest, mark))
    return TaskPage(tasks, token, queue.applied_index, now_ms)


def _text(rest: Rest, mark: str) -> str:
    """Return the content of the token for the remaining tasks."""
    begin = rest.place if isinstance(rest, Passed) else (rest.after_id,)
    return ":".join((*map(str, begin), str(rest.last_id), mark))


def _rest(token: str, mark: str, *, by_place: bool) -> Rest:
    """Return the remaining tasks after the page of a token."""
    *parts, own_mark = key_of_token(token).split(":")
    if own_mark != mark or len(parts) != (4 if by_place else 2):
        raise page_token_refused()
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise page_token_refused()
    *begin, last_id = map(int, parts)
    lowest = -(1 << 63) if by_place else 0
    if not all(lowest <= number < 1 << 63 for number in begin) or not 0 <= last_id < 1 << 63:
        raise page_token_refused()
    return Passed(tuple(begin), last_id) if by_place else Window(begin[0], last_id)
