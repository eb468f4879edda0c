"""Serve TakeTasks: take at once, or wait in line for tasks."""

from __future__ import annotations

import asyncio

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.state.command_executor import CommandExecutor, idempotency_hash, result_of
from taskraft_service.api.state.existence import ExistenceCheck
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks import put_checks as task_checks
from taskraft_service.api.tasks.lease_returns import LeaseReturns
from taskraft_service.api.tasks.take_answer import TakeAnswer
from taskraft_service.api.tasks.waiting_take import WaitingTake, wait_seconds
from taskraft_service.languages.patterns import TubePattern, is_pattern
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import TAKE_BYTES_BESIDE, TAKE_BYTES_DEFAULT
from taskraft_service.queue.operations.take import TakeResult


class TakeHandler:
    """The handler of TakeTasks.

    Args:
        mutations: takes for those who do not wait.
        reading: has the queue.
        known: confirms what a call names.
        waiters: the consumers that wait, on the leader.
        unlogged_calls: counts takes that found nothing.
    """

    def __init__(
        self,
        mutations: CommandExecutor,
        reading: QueueReader,
        known: ExistenceCheck,
        waiters: Waiters,
        unlogged_calls: UnloggedCalls,
    ) -> None:
        self._mutations = mutations
        self._reading = reading
        self._known = known
        self._waiters = waiters
        self._unlogged_calls = unlogged_calls
        self._submitter = mutations.submitter
        self._give_back = LeaseReturns(mutations.submitter)

    def method(self) -> UnaryMethod[pb.TakeTasksRequest]:
        """Return the method TakeTasks; consumers wait on the leader."""
        return UnaryMethod("TakeTasks", pb.TakeTasksRequest, ExecutionSite.LEADER, self.take_tasks)

    async def take_tasks(self, call: UnaryCall[pb.TakeTasksRequest]) -> bytes:
        """Take tasks, or wait for some."""
        request = call.request
        task_checks.check_take(request)
        sources = [source.tube for source in request.sources]
        await self._known.tubes(sources)
        await self._known.session(request.session_id, call.caller)
        hash_of_request = idempotency_hash(call)
        taker = WaitingTake(request, hash_of_request, self._give_back, call.caller)
        wait_ms = request.wait_ms if request.HasField("wait_ms") else None
        wait = wait_seconds(wait_ms, call)
        outcome = await self._take_at_once(call, taker, wait)
        if outcome is None:
            outcome = await self._wait(taker, wait)
        if not result_of(outcome, TakeResult).tasks:
            self._unlogged_calls.count_take_timeout(self._existing(taker))
        bytes_max = (request.bytes_max or TAKE_BYTES_DEFAULT) + TAKE_BYTES_BESIDE
        answer = TakeAnswer(outcome, bytes_max, payload_omit=request.payload_omit)
        if answer.left_out:
            self._give_back(answer.left_out)
        return answer.raw

    async def _take_at_once(
        self, call: UnaryCall[pb.TakeTasksRequest], taker: WaitingTake, wait: float
    ) -> AppliedCommand | None:
        """Take without a place in line where that is asked for; None: the call has to wait.

        A request_id may belong to a take that was answered before, so it is looked up in the log's
        order first. A chosen task is taken now or not at all.
        """
        chosen = call.request.HasField("task_id")
        if wait > 0 and not chosen and not call.request.request_id:
            return None
        names = self._existing(taker)
        encoded = taker.narrowed(names, call.request.tasks_max or 1)
        outcome = await self._mutations.propose(encoded, call.deadline)
        if wait <= 0 or chosen or result_of(outcome, TakeResult).tasks:
            return outcome
        return None

    def _existing(self, taker: WaitingTake) -> list[str]:
        """Return the tubes that a call's sources name, in order of the sources, each once."""
        found: dict[str, None] = {}
        for source in taker.sources:
            found.update(dict.fromkeys(self._named_by(source, taker)))
        return list(found)

    def _named_by(self, source: str, taker: WaitingTake) -> list[str]:
        """Return the tubes that a source names; by a pattern those that the caller may use."""
        queue = self._reading.applied
        if not is_pattern(source):
            return [source] if queue.tube(source) is not None else []
        pattern = TubePattern(source)
        return [
            tube.name
            for tube in queue.tubes()
            if taker.allows(tube.name) and pattern.matches(tube.name)
        ]

    async def _wait(self, taker: WaitingTake, wait: float) -> AppliedCommand:
        """Wait in line; an empty outcome when the time is over."""
        self._waiters.add(taker)
        self._submitter.wake()
        try:
            await asyncio.wait((taker.outcome,), timeout=wait)
            self._waiters.remove(taker)
            if not taker.outcome.done():
                # A claim without answer may still bring tasks, which must not be lost.
                await taker.idle.wait()
        except asyncio.CancelledError:
            taker.abandon()
            raise
        finally:
            self._waiters.remove(taker)
        if taker.outcome.done():
            return taker.outcome.result()
        taker.outcome.cancel()
        queue = self._reading.applied
        return AppliedCommand(
            queue.applied_index, self._reading.now_ms(), TakeResult((), taker.cut_short)
        )
