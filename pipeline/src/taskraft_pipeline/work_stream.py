"""Take tasks for a streaming query, and acknowledge them when Spark has committed their batch.

An offset contains the leases of its batch. Spark logs the offset before it reads the batch, so a
query that starts again reads the same tasks. Spark asks for the offset after ``start`` only when
the batch that ends at ``start`` is committed. The stream then acknowledges the leases of ``start``.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1.task_pb2 import Task, TaskSelector
from taskraft_pipeline.errors import OffsetInvalid
from taskraft_pipeline.feed_client import TaskStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from taskraft_pipeline.feed_client import FeedClient
    from taskraft_pipeline.options import Options

log = logging.getLogger(__name__)

FORMAT: Final = 1
"""Format of the offsets."""
TAKE_TASKS: Final = 1_000
"""Maximum number of tasks of one take. One take also has at most 3 MiB of payloads."""


class WorkLease(NamedTuple):
    """A lease of a task; the token identifies the lease in the cluster."""

    tube: str
    task_id: int
    token: int


@dataclass(slots=True, frozen=True)
class WorkOffset:
    """The end of a batch.

    Attributes:
        epoch: number of batches of the query up to here.
        takes: leases of the last of these batches, by take.
    """

    epoch: int = 0
    takes: tuple[tuple[WorkLease, ...], ...] = ()

    @property
    def leases(self) -> list[WorkLease]:
        """Leases of all takes."""
        return [lease for take in self.takes for lease in take]

    def to_json(self) -> dict[str, object]:
        """Return the offset as Spark logs it."""
        takes = [[list(lease) for lease in take] for take in self.takes]
        return {"v": FORMAT, "epoch": self.epoch, "takes": takes}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> WorkOffset:
        """Return the offset that `to_json` made.

        Raises:
            OffsetInvalid: the format is unknown, or a field is missing or malformed.
        """
        epoch, takes = stored.get("epoch"), stored.get("takes")
        if stored.get("v") != FORMAT or not isinstance(epoch, int) or not isinstance(takes, list):
            raise OffsetInvalid(f"not an offset of read=work in format {FORMAT}: {stored}")
        try:
            found = tuple(
                tuple(WorkLease(str(tube), int(one), int(token)) for tube, one, token in take)
                for take in takes
            )
        except (TypeError, ValueError) as error:
            raise OffsetInvalid(f"a damaged offset of read=work: {error}") from error
        return cls(epoch, found)


class WorkStream:
    """Answers Spark's requests for offsets; runs on the driver."""

    def __init__(self, options: Options, client: FeedClient, clock: Callable[[], float]) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._settled = 0
        self._empty_at: float | None = None
        self._is_bounded = False
        self._has_ended = False
        self._end_ms = 0

    def fix_end(self) -> None:
        """End the query after the first batch with a task that is newer than the first take."""
        self._is_bounded = True

    def latest(self, start: WorkOffset, tasks_max: int) -> WorkOffset:
        """Acknowledge the batch that ends at ``start``; return the offset with the next tasks.

        Returns:
            ``start`` if no task is READY, or if the end of a bounded query is reached.
        """
        self._settle(start)
        now = self._clock()
        pause_s = self._options.poll_interval_ms / 1_000
        is_paused = self._empty_at is not None and now - self._empty_at < pause_s
        if is_paused or self._has_ended:
            return start
        takes = tuple(self._takes(tasks_max))
        self._empty_at = None if takes else now
        return WorkOffset(start.epoch + 1, takes) if takes else start

    def _takes(self, tasks_max: int) -> Iterator[tuple[WorkLease, ...]]:
        left = tasks_max
        while left > 0:
            answer = self._take(min(left, TAKE_TASKS))
            if not answer.tasks:
                return
            self._end_ms = self._end_ms or answer.now_ms
            if self._is_bounded and any(one.created_ms > self._end_ms for one in answer.tasks):
                self._has_ended = True
            yield tuple(WorkLease(one.tube, one.id, one.token) for one in answer.tasks)
            left -= len(answer.tasks)

    def _take(self, tasks_max: int) -> pb.TakeTasksResponse:
        request = pb.TakeTasksRequest(
            request_id=str(uuid.uuid4()),
            sources=[pb.TakeSource(tube=tube) for tube in self._options.tubes],
            tasks_max=tasks_max,
            ttr_ms=self._options.lease_ms,
            wait_ms=0,
        )
        return self._client.send(
            lambda channel, seconds: TaskStub(channel).TakeTasks(request, timeout=seconds)
        )

    def _settle(self, start: WorkOffset) -> None:
        """Acknowledge the leases of a committed batch once."""
        if start.epoch == self._settled:
            return
        lost = 0
        for take in start.takes:
            answer = self._acknowledge([lease.token for lease in take])
            lost += len(answer.errors)
        if lost:
            log.warning(
                "epoch %s: %s of %s leases had ended before the acknowledgement; unless they were"
                " acknowledged before, their tasks are processed again",
                start.epoch, lost, len(start.leases),
            )  # fmt: skip
        self._settled = start.epoch

    def _acknowledge(self, tokens: Sequence[int]) -> pb.SettleTasksResponse:
        request = pb.SettleTasksRequest(
            request_id=str(uuid.uuid4()),
            settlements=[pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())],
        )
        return self._client.send(
            lambda channel, seconds: TaskStub(channel).SettleTasks(request, timeout=seconds)
        )


def leased_tasks(client: FeedClient, leases: Sequence[WorkLease]) -> tuple[list[Task], int]:
    """Return the tasks of one take that are still leased, in its order, and their revision.

    Args:
        client: sends the calls.
        leases: leases of one take.
    """
    tasks: dict[tuple[str, int], Task] = {}
    revision = 0
    for tube in dict.fromkeys(lease.tube for lease in leases):
        ids = [lease.task_id for lease in leases if lease.tube == tube]
        answer = _tasks_with_ids(client, tube, ids)
        tasks |= {(tube, one.id): one for one in answer.tasks}
        revision = max(revision, answer.revision)
    found = [(lease, tasks.get((lease.tube, lease.task_id))) for lease in leases]
    return [task for lease, task in found if task and task.token == lease.token], revision


def _tasks_with_ids(client: FeedClient, tube: str, ids: Sequence[int]) -> pb.GetTasksResponse:
    request = pb.GetTasksRequest(tube=tube, selector=TaskSelector(ids=ids))
    return client.send(
        lambda channel, seconds: TaskStub(channel).GetTasks(request, timeout=seconds)
    )
