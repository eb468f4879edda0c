"""Let one call of TakeTasks wait for its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import ANONYMOUS, Caller
from taskraft_service.api.rpc.methods import M, UnaryCall
from taskraft_service.api.rpc.status import refused_by_queue, tube_not_found
from taskraft_service.api.tasks.consumer_sources import ConsumerSources
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed, SubmitFailure
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import Claim
from taskraft_service.limits import DEADLINE_MARGIN_MS, WAIT_MAX_MS
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.operations.take import TakeResult


def wait_seconds(wait_ms: int | None, call: UnaryCall[M]) -> float:
    """Return how long a call may wait from now on: it ends shortly before the caller gives up.

    What it has waited already, here or at a leader before, is part of its wait.

    Args:
        wait_ms: what the caller asks for; None: until shortly before the deadline.
        call: the call.
    """
    now = asyncio.get_running_loop().time()
    until = call.arrived_at + min(WAIT_MAX_MS if wait_ms is None else wait_ms, WAIT_MAX_MS) / 1000
    if call.deadline is not None:
        until = min(until, call.deadline - DEADLINE_MARGIN_MS / 1000)
    return max(until - now, 0.0)


class WaitingTake:
    """A consumer that leaves with its first tasks; satisfies ``WaitingConsumer``.

    Args:
        request: the call's request, checked.
        hash_of_request: its hash, 0 without a request_id.
        give_back: releases tasks that arrive when the caller has gone.
        caller: whose call it is.
    """

    one_shot = True

    def __init__(
        self,
        request: pb.TakeTasksRequest,
        hash_of_request: int,
        give_back: Callable[[Sequence[TaskView]], None],
        caller: Caller = ANONYMOUS,
    ) -> None:
        self._request = request
        self._hash = hash_of_request
        self._give_back = give_back
        self._claimed = False
        self._abandoned = False
        self._sources = ConsumerSources(request.sources, caller)
        self.sources = self._sources.names
        self._left = set(self.sources)
        """Names of the tubes that have not been dropped meanwhile."""
        self.cut_short = False
        """Whether the last claim had to leave tasks unlooked at, see ``TakeResult``."""
        self.outcome: asyncio.Future[AppliedCommand] = asyncio.get_running_loop().create_future()
        self.idle = asyncio.Event()
        """Set while no claim is without answer."""
        self.idle.set()

    @property
    def is_selective(self) -> bool:
        """See ``Consumer``."""
        return bool(self._request.types) or self._request.HasField("priority_bound")

    def allows(self, tube: str) -> bool:
        """See ``Consumer``."""
        return self._sources.allows(tube)

    def wanted_tasks(self) -> int:
        """Return how many tasks the call may take now."""
        return 0 if self._claimed or self.outcome.done() else self._request.tasks_max or 1

    def take(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return the call's request, narrowed to tubes that have something."""
        self._claimed = True
        self.idle.clear()
        return self.narrowed(tubes, tasks_max)

    def narrowed(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return the call's request for other tubes and another number of tasks."""
        request = pb.TakeTasksRequest()
        request.CopyFrom(self._request)
        request.ClearField("wait_ms")
        request.ClearField("sources")
        request.sources.extend(self._sources.narrowed(tubes))
        request.tasks_max = tasks_max
        return encode_leader_command(TAKE, request, self._hash)

    def answered(self, claim: Claim, outcome: AppliedCommand | SubmitFailure) -> None:
        """Take the answer to the claim; a claim that found nothing leaves the call waiting."""
        del claim
        self._claimed = False
        self.idle.set()
        if not isinstance(outcome, AppliedCommand):
            self._fail(outcome)
        elif isinstance(outcome.result, Refusal):
            # A tube that matched a pattern may be dropped meanwhile; another may come.
            is_gone = outcome.result.reason is Reason.TUBE_NOT_FOUND
            if not (is_gone and self._sources.has_patterns):
                self._fail(refused_by_queue(outcome.result))
        elif isinstance(outcome.result, TakeResult):
            self.cut_short = outcome.result.cut_short
            if outcome.result.tasks:
                self._leave(outcome, outcome.result.tasks)

    def _leave(self, outcome: AppliedCommand, tasks: Sequence[TaskView]) -> None:
        """End the call with its first tasks; nobody may be there any more to have them."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        elif self._abandoned:
            self._give_back(tasks)

    def tube_dropped(self, tube: str) -> None:
        """End the call if no tube is left that it could take from."""
        self._left.discard(tube)
        if not self._left and not self._sources.has_patterns:
            self._fail(tube_not_found(tube))

    def abandon(self) -> None:
        """Take note that the caller has gone.

        With a request_id the leases stay: a retry of the caller is answered with the same ones.
        """
        if self.outcome.done() and not self.outcome.cancelled():
            if self.outcome.exception() is None and not self._request.request_id:
                result = self.outcome.result().result
                assert isinstance(result, TakeResult)
                self._give_back(result.tasks)
            return
        self.outcome.cancel()
        self._abandoned = not self._request.request_id

    def end(self) -> None:
        """Tell the call that this node leads no more; another node answers it."""
        self._fail(NotProposed("leadership was lost"))

    def _fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class WaitingTakes:
    """The calls among all consumers that wait; satisfies ``lifecycle.LeaderOnlyWaits``."""

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters

    def redirect_all(self) -> None:
        """Send all of them to the next leader."""
        for consumer in self._waiters:
            if isinstance(consumer, WaitingTake):
                consumer.end()
