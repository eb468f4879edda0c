"""Let a call of TakeTasks wait for tasks on the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import refused_by_queue, tube_not_found
from taskraft_service.api.tasks.consumer_sources import ConsumerSources
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed, SubmitFailure
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import Claim, ConsumerProfile, WaitingConsumer
from taskraft_service.machine.sliced_calls import ENDED_AT_ONCE, SlicedCalls
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.take import TakeResult


def narrowed_take(
    request: pb.TakeTasksRequest,
    sources: ConsumerSources,
    tubes: Sequence[str],
    tasks_max: int,
    key: RequestKey,
) -> EncodedCommand:
    """Return the take of a request, for ``tubes`` in place of its sources."""
    narrowed = pb.TakeTasksRequest()
    narrowed.CopyFrom(request)
    narrowed.ClearField("wait_ms")
    narrowed.ClearField("sources")
    narrowed.sources.extend(sources.narrowed(tubes))
    narrowed.tasks_max = tasks_max
    return encode_leader_command(TAKE, narrowed, key)


class WaitingTake:
    """A ``WaitingConsumer`` that leaves with its first tasks.

    Args:
        request: the checked request of the call.
        sources: the sources of the request.
        key: the key of the request.
        release: releases leases that arrive after the caller has disconnected.
        profile: identity and waiting time of the consumer.
    """

    one_shot = True

    def __init__(
        self,
        request: pb.TakeTasksRequest,
        sources: ConsumerSources,
        key: RequestKey,
        release: Callable[[Sequence[int]], None],
        profile: ConsumerProfile,
    ) -> None:
        self.profile = profile
        self._request = request
        self._key = key
        self._release = release
        self._claimed = False
        self._abandoned = False
        self._redirected = False
        self._sources = sources
        self.sources = sources.names
        self.has_patterns: Final = sources.has_patterns
        self._remaining = set(sources.names)
        """Names of the sources that were not dropped."""
        self.cut_short = False
        """Whether the last claim stopped at its scan budget, see ``TakeResult``."""
        self.outcome: asyncio.Future[AppliedCommand] = asyncio.get_running_loop().create_future()
        self.idle = asyncio.Event()
        """Set while no claim is in flight."""
        self.idle.set()

    @property
    def is_selective(self) -> bool:
        """Return whether the consumer accepts only some of the ready tasks."""
        return bool(self._request.types) or self._request.HasField("priority_bound")

    def allows(self, tube: str) -> bool:
        """Return whether the consumer may take from a tube that one of its patterns matches."""
        return self._sources.allows(tube)

    def yields(self, tube: str) -> bool:
        """Return whether other consumers of a tube that do not yield are served first."""
        return self._sources.yields(tube)

    def wanted_tasks(self) -> int:
        """Return the number of tasks that the consumer can accept beyond its unanswered claims."""
        if self._claimed or self._redirected or self.outcome.done():
            return 0
        return self._request.tasks_max or 1

    def take(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return a take from existing tubes, whose result is later passed to ``answered``."""
        self._claimed = True
        self.idle.clear()
        return narrowed_take(self._request, self._sources, tubes, tasks_max, self._key)

    def answered(self, claim: Claim, outcome: AppliedCommand | SubmitFailure) -> None:
        """End the wait with the tasks or the error of a claim; an empty claim does not end it."""
        del claim
        self._claimed = False
        self.idle.set()
        if not isinstance(outcome, AppliedCommand):
            self._fail(outcome)
        elif isinstance(outcome.result, Refusal):
            # A tube that matched a pattern was dropped; another tube may match later.
            was_dropped = outcome.result.reason is Reason.TUBE_NOT_FOUND
            if not (was_dropped and self.has_patterns):
                self._fail(refused_by_queue(outcome.result))
        elif isinstance(outcome.result, TakeResult):
            self.cut_short = outcome.result.cut_short
            if outcome.result.tasks:
                self._finish(outcome, outcome.result.tasks)
        if self._redirected:
            self._fail(NotProposed("leadership was lost"))

    def _finish(self, outcome: AppliedCommand, tasks: Sequence[TaskView]) -> None:
        """End the call with its first tasks; release the tasks if the caller has disconnected."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        elif self._abandoned:
            self._release([task.token for task in tasks])

    def tube_dropped(self, tube: str) -> None:
        """End the call with TUBE_NOT_FOUND if none of its sources is left."""
        self._remaining.discard(tube)
        if not self._remaining and not self.has_patterns:
            self._fail(tube_not_found(tube))

    def abandon(self) -> None:
        """Release the tasks of a disconnected caller, including tasks that arrive later.

        With a request_id the leases stay, because a retry is answered with the same leases.
        """
        if self.outcome.done() and not self.outcome.cancelled():
            if self.outcome.exception() is None and not self._request.request_id:
                result = self.outcome.result().result
                assert isinstance(result, TakeResult)
                self._release([task.token for task in result.tasks])
            return
        self.outcome.cancel()
        self._abandoned = not self._request.request_id

    def redirect(self) -> None:
        """End the call with NotProposed, so that it continues on the next leader.

        An unanswered claim decides first, because it may still lease tasks to the caller.
        """
        self._redirected = True
        if not self._claimed:
            self._fail(NotProposed("leadership was lost"))

    def _fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class WaitingTakes:
    """All waiting calls of TakeTasks; satisfies ``lifecycle.LeaderOnlyWaits``."""

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._redirected: SlicedCalls[WaitingConsumer] = SlicedCalls(ENDED_AT_ONCE)

    def redirect_all(self) -> None:
        """End all waiting calls, so that they continue on the next leader."""
        self._redirected.add(_redirect, self._waiters)


def _redirect(consumer: WaitingConsumer) -> None:
    if isinstance(consumer, WaitingTake):
        consumer.redirect()
