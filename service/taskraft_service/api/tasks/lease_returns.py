"""Give tasks back that were leased to somebody who has gone in the meantime."""

from __future__ import annotations

from collections.abc import Iterable

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.leader.command_submitter import (
    CommandSubmitter,
    LeaderOverloaded,
    NotProposed,
)
from taskraft_service.limits import PUT_TASKS_MAX
from taskraft_service.queue.entities.task_view import TaskView


class LeaseReturns:
    """Releases leases whose tasks were never delivered; their attempts do not count."""

    def __init__(self, submitter: CommandSubmitter) -> None:
        self._submitter = submitter

    def __call__(self, tasks: Iterable[TaskView]) -> None:
        """Propose the release; if it fails, the leases end by themselves in time."""
        self.tokens([task.token for task in tasks])

    def tokens(self, tokens: list[int]) -> None:
        """Propose the release of some leases."""
        for start in range(0, len(tokens), PUT_TASKS_MAX):
            request = pb.SettleTasksRequest()
            settlement = request.settlements.add(tokens=tokens[start : start + PUT_TASKS_MAX])
            settlement.release.uncounted = True
            try:
                future = self._submitter.submit(encode_leader_command(SETTLE, request))
            except (NotProposed, LeaderOverloaded):
                return
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
