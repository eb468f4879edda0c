"""Write the answer to a take, no larger than the caller can receive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.api.state.command_executor import result_of
from taskraft_service.api.tasks.answers import encode_tasks
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.take import TakeResult

_TAKEN: Final = pb.TakeTasksResponse.TASKS_FIELD_NUMBER
_NOW: Final = wire.tag(pb.TakeTasksResponse.NOW_MS_FIELD_NUMBER, wire.VARINT)
_REVISION: Final = wire.tag(pb.TakeTasksResponse.REVISION_FIELD_NUMBER, wire.VARINT)
_CUT_SHORT: Final = wire.tag(pb.TakeTasksResponse.CUT_SHORT_FIELD_NUMBER, wire.VARINT)


class TakeAnswer:
    """A TakeTasksResponse of about ``bytes_max`` at most, but always with one task.

    The queue has counted payloads. What else tasks have, headers above all, counts here: an answer
    that the caller cannot receive would keep its tasks from everybody until their leases end.

    Attributes:
        raw: the answer.
        left_out: leased tasks that found no place in it, to be given back.
    """

    def __init__(self, outcome: AppliedCommand, bytes_max: int, *, payload_omit: bool) -> None:
        result = result_of(outcome, TakeResult)
        tasks = result.tasks
        parts = encode_tasks(tasks, _TAKEN, payload_omit=payload_omit)
        self.left_out: Sequence[TaskView] = ()
        if sum(map(len, parts)) > bytes_max:
            fits = sum(total <= bytes_max for total in accumulate(map(len, parts)))
            kept = max(fits, 1)
            self.left_out = tasks[kept:]
            del parts[kept:]
        parts += (_NOW, wire.varint(outcome.now_ms), _REVISION, wire.varint(outcome.index))
        if result.cut_short:
            parts += (_CUT_SHORT, wire.varint(1))
        self.raw = b"".join(parts)
