"""Handle TakeTasks: check the request, take tasks at once, or wait for tasks on the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import CallRefused, refused_by_queue
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.checks import ExistenceCheck
from taskraft_service.api.state.command_executor import (
    CommandExecutor,
    request_key,
    result_of,
    scoped_request_id,
)
from taskraft_service.api.state.lease_returns import LeaseReturns
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import encode_take
from taskraft_service.api.tasks.consumer_sources import (
    ConsumerSources,
    check_sources,
    check_types,
    check_wait,
)
from taskraft_service.api.tasks.waiting_take import WaitingTake, narrowed_take
from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.operations.take import TakeResult
from taskraft_service.turns import next_turn

COUNT_STEPS: Final = 4
"""Number of steps in which a tube counts a take without a task."""
TUBES_AT_ONCE: Final = 300
"""Number of tubes of a take above which the command is encoded in another turn of the event
loop."""


class TakeHandler:
    """The handler of TakeTasks.

    Args:
        executor: executes takes that do not wait.
        reader: reads the queue.
        existence: checks the tubes and the session of a call.
        returns: releases the leases of tasks that a call did not deliver.
        waiters: the waiting consumers of the leader.
        unlogged_calls: counts takes that found no task.
        may_wait: returns whether this node leads, serves and does not stop, so that calls may begin
            to wait.
    """

    def __init__(
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        existence: ExistenceCheck,
        returns: LeaseReturns,
        waiters: Waiters,
        unlogged_calls: UnloggedCalls,
        may_wait: Callable[[], bool],
    ) -> None:
        self._executor = executor
        self._reader = reader
        self._existence = existence
        self._returns = returns
        self._waiters = waiters
        self._unlogged_calls = unlogged_calls
        self._may_wait = may_wait

    def method(self) -> UnaryMethod[pb.TakeTasksRequest]:
        """Return the method TakeTasks with its handler."""
        return UnaryMethod(
            "TakeTasks",
            pb.TakeTasksRequest,
            ExecutionSite.LEADER,
            self.take_tasks,
            is_wait=True,
            undelivered=self._take_back,
        )

    async def take_tasks(self, call: UnaryCall[pb.TakeTasksRequest]) -> bytes:
        """Take tasks; if none is ready, wait as long as the request allows."""
        request = call.request
        violations = check_take(request)
        if violations.zeros:
            named = [source.tube for source in request.sources]
            violations.allow_zeros(lambda: self._reader.defines_zero(named))
        violations.raise_if_any()
        sources = ConsumerSources(request.sources, call.caller)
        await self._check_existence(call, sources)
        wait = call.wait_seconds(request.wait_ms if request.HasField("wait_ms") else None)
        applied, tubes = await self._take_at_once(call, sources, wait)
        if applied is None:
            if sources.has_patterns:
                await next_turn()
            check_wait(sources, self._waiters, self._reader.applied.tube_names(), call.steps)
            since_ms = self._reader.wall_now_ms()
            waiting = WaitingTake(
                request,
                sources,
                request_key(call),
                partial(self._give_back, call),
                ConsumerProfile(
                    principal=call.caller.name,
                    peer=call.caller.peer,
                    session_id=request.session_id,
                    types=tuple(request.types),
                    since_ms=since_ms,
                    until_ms=since_ms + int(wait * 1_000),
                ),
            )
            applied, tubes = await self._wait(waiting, wait)
        result = result_of(applied, TakeResult)
        if not result.tasks:
            await self._count_timeout(call, tubes)
        answer, undelivered = encode_take(applied, result, request)
        if undelivered:
            self._give_back(call, [task.token for task in undelivered])
        return answer

    async def _count_timeout(
        self, call: UnaryCall[pb.TakeTasksRequest], tubes: Sequence[str]
    ) -> None:
        """Count a take without a task for each of its tubes that exists, in turns."""
        async for part in call.steps.slices(tubes, COUNT_STEPS):
            queue = self._reader.applied
            existing = [name for name in part if queue.tube_number(name) is not None]
            self._unlogged_calls.count_take_timeout(existing)

    async def _check_existence(
        self, call: UnaryCall[pb.TakeTasksRequest], sources: ConsumerSources
    ) -> None:
        """Check the tubes and the session, unless the log holds the answer of this call.

        The first attempt may have taken tasks before the tube was dropped or the session ended. A
        retry of the call must not be refused as if the call had no effect.
        """
        try:
            await self._existence.check_tubes(sources.names)
            if call.request.session_id:
                await self._existence.check_session(call.request.session_id, call.caller)
        except CallRefused:
            # Look for the answer after the checks, because a check waits until earlier attempts of
            # the call are applied.
            if not self._reader.applied.remembers(scoped_request_id(call)):
                raise

    def _give_back(self, call: UnaryCall[pb.TakeTasksRequest], tokens: Sequence[int]) -> None:
        self._returns.release(tokens, call.caller)

    def _take_back(self, _request: pb.TakeTasksRequest, answer: bytes, caller: Caller) -> None:
        """Release the tasks of an answer that could not be sent."""
        tokens = [task.token for task in pb.TakeTasksResponse.FromString(answer).tasks]
        self._returns.release(tokens, caller)

    async def _take_at_once(
        self, call: UnaryCall[pb.TakeTasksRequest], sources: ConsumerSources, wait: float
    ) -> tuple[AppliedCommand | None, Sequence[str]]:
        """Take without waiting; return the outcome, None if the call has to wait, and the tubes.

        A call with a request_id is proposed first, because the log may hold its answer. A task
        that is chosen by id is taken now or not at all.
        """
        request = call.request
        is_chosen = request.HasField("task_id")
        if wait > 0 and not is_chosen and not request.request_id:
            return None, ()
        tubes = await self._existing(call, sources)
        if len(tubes) > TUBES_AT_ONCE:
            await next_turn()
        encoded = narrowed_take(request, sources, tubes, request.tasks_max or 1, request_key(call))
        applied = await self._taken(call, encoded)
        if wait <= 0 or is_chosen or result_of(applied, TakeResult).tasks:
            return applied, tubes
        return None, tubes

    async def _taken(
        self, call: UnaryCall[pb.TakeTasksRequest], encoded: EncodedCommand
    ) -> AppliedCommand:
        """Execute a take; release the tasks if the caller disconnects before the result is known.

        With a request_id the leases stay, because a retry is answered with the same leases.
        """
        future = self._executor.submitter.submit(encoded, call.deadline)
        try:
            applied = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not call.request.request_id:
                future.add_done_callback(partial(self._give_back_all, call))
            raise
        if isinstance(applied.result, Refusal):
            raise refused_by_queue(applied.result)
        return applied

    def _give_back_all(
        self, call: UnaryCall[pb.TakeTasksRequest], future: asyncio.Future[AppliedCommand]
    ) -> None:
        if not future.cancelled() and future.exception() is None:
            result = future.result().result
            if isinstance(result, TakeResult) and result.tasks:
                self._give_back(call, [task.token for task in result.tasks])

    async def _existing(
        self, call: UnaryCall[pb.TakeTasksRequest], sources: ConsumerSources
    ) -> list[str]:
        """Return the existing tubes that the sources name, in order of the sources, each once.

        A pattern stands for the matching tubes that the caller may take from.

        Raises:
            CallRefused: TOO_MANY_STEPS.
        """
        queue = self._reader.applied
        if not sources.has_patterns:
            wanted = dict.fromkeys(sources.names)
            return [name for name in wanted if queue.tube_number(name) is not None]
        patterns = sources.patterns
        found = await call.steps.matching(queue.tube_names(), patterns, sources.allows)
        ranks = await call.steps.in_slices(found, patterns.rank_of, patterns.steps_max)
        ranked = sorted(zip(ranks, found, strict=True), key=lambda pair: pair[0] or 0)
        return [name for _, name in ranked]

    async def _wait(
        self, waiting: WaitingTake, seconds: float
    ) -> tuple[AppliedCommand, Sequence[str]]:
        """Wait among the consumers of the leader; return an empty take when the time is over.

        If tasks are ready and the log accepts no entry, the call waits until the tasks are taken.

        Returns:
            The take, and the tubes on which the call waited until the time was over.

        Raises:
            NotProposed: this node does not serve any more.
        """
        if not self._may_wait():
            # This node has redirected its waiting calls, and would not redirect a later one.
            raise NotProposed("this node does not lead")
        until = asyncio.get_running_loop().time() + seconds
        tubes: Sequence[str] = ()
        self._waiters.add(waiting)
        self._executor.submitter.wake()
        try:
            while self._waiters.add_more(waiting):
                self._executor.submitter.wake()
                await next_turn()
            left = max(until - asyncio.get_running_loop().time(), 0.0)
            await asyncio.wait((waiting.outcome,), timeout=left)
            if waiting.has_patterns and not waiting.outcome.done():
                await next_turn()  # the time of many takes can be over at the same instant
            if not waiting.outcome.done():
                may_leave = asyncio.get_running_loop().create_future()
                self._waiters.leaving.add(waiting, partial(may_leave.set_result, None))
                await asyncio.wait(
                    (waiting.outcome, may_leave), return_when=asyncio.FIRST_COMPLETED
                )
                tubes = self._waiters.tubes_of(waiting)
            self._waiters.remove(waiting)
            if not waiting.outcome.done():
                # A claim in flight may still bring tasks, which must not be lost.
                await waiting.idle.wait()
        except asyncio.CancelledError:
            waiting.abandon()
            raise
        finally:
            self._waiters.remove(waiting)
        if waiting.outcome.done():
            return waiting.outcome.result(), tubes
        waiting.outcome.cancel()
        queue = self._reader.applied
        timed_out = AppliedCommand(
            queue.applied_index,
            self._reader.now_ms(),
            queue.wall_offset_ms,
            TakeResult((), waiting.cut_short),
        )
        return timed_out, tubes


def check_take(request: pb.TakeTasksRequest) -> Violations:
    """Return the violations of a take; a field that is not set needs no check."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    check_sources(violations, "sources", request.sources)
    if request.types:
        check_types(violations, "types", request.types)
    if request.session_id:
        violations.check_session_id("session_id", request.session_id)
    if request.tasks_max:
        violations.check_range("tasks_max", request.tasks_max, 0, limits.TAKE_TASKS_MAX)
    if request.bytes_max:
        violations.check_not_negative("bytes_max", request.bytes_max)
    if request.wait_ms:
        violations.check_not_negative("wait_ms", request.wait_ms)
    if request.HasField("ttr_ms"):
        violations.check_limit("ttr_ms", request, "ttr_ms")
    if request.HasField("task_id"):
        _check_chosen(violations, request)
    return violations


def _check_chosen(violations: Violations, request: pb.TakeTasksRequest) -> None:
    """Check a take that chooses its task by id."""
    violations.check_positive("task_id", request.task_id)
    if len(request.sources) != 1 or "*" in request.sources[0].tube:
        violations.add("sources", "task_id needs exactly one tube")
    for field, given in (
        ("types", bool(request.types)),
        ("priority_bound", request.HasField("priority_bound")),
    ):
        if given:
            violations.add(field, "not allowed together with task_id")
