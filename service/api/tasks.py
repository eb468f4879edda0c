"""Serve the unary methods of TaskService."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from service import forms
from service.access.caller import Caller
from service.access.leases import own_settlements, owns_session
from service.api import task_checks
from service.api.answers import encode_tasks
from service.api.batch import BatchApi
from service.api.chosen import chosen_tasks
from service.api.disk_room import DiskRoom
from service.api.failed import with_key
from service.api.lease_returns import LeaseReturns
from service.api.listing import page_of_tasks
from service.api.method import Call, Route, Servicer, StreamMethod, Unary
from service.api.missing_tubes import MissingTubes
from service.api.mutations import Mutations, hash_if_named, result_of
from service.api.outcomes import OutcomeApi
from service.api.reading import Reading
from service.api.room_waits import put_when_room
from service.api.selection_checks import check_get, check_list
from service.api.settle_checks import check_settle
from service.api.status import Refused, error_message, item_errors, tube_not_found
from service.api.take_answer import TakeAnswer
from service.api.waiting import WaitingTake, wait_seconds
from service.cluster.settings import SettingsInForce
from service.entries.codec import Recorded, record_own
from service.forms.selection import selector_of
from service.languages.patterns import is_pattern, matcher
from service.leader.call_notes import CallNotes
from service.leader.proposal import Outcome
from service.leader.waiters import Waiters
from service.limits import TAKE_BYTES_BESIDE, TAKE_BYTES_DEFAULT
from service.queue.commands import (
    ByFilter,
    PutResult,
    Refusal,
    SettleResult,
    TakeResult,
    TaskView,
)
from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["TaskService"]
_SHOWN: Final = pb.GetTasksResponse.TASKS_FIELD_NUMBER
_FAILED: Final = pb.GetTasksResponse.FAILED_FIELD_NUMBER
assert pb.ListTasksResponse.TASKS_FIELD_NUMBER == _SHOWN


@dataclass(slots=True, frozen=True)
class TaskSettings:
    """What a node decides by its configuration."""

    payload_bytes_max: int
    in_force: SettingsInForce


class Known(Protocol):
    """Confirms that what a call names exists."""

    async def tubes(self, sources: Sequence[str]) -> None:
        """Refuse with TUBE_NOT_FOUND if a source names a tube that does not exist."""

    async def session(self, session_id: str, caller: Caller) -> None:
        """Refuse with SESSION_NOT_FOUND if there is no such session, or it is another's."""


class KnownOnLeader:
    """Looks at what is applied; before it says no, it asks whether that is the last word."""

    def __init__(self, reading: Reading, *, lenient: Callable[[], bool]) -> None:
        self._reading = reading
        self._lenient = lenient

    async def tubes(self, sources: Sequence[str]) -> None:
        """See ``Known``; with automatic creation an unknown tube may come into being."""
        if self._lenient():
            return
        for source in sources:
            if is_pattern(source):
                continue
            if self._reading.applied.tube(source) is None:
                await self._reading.barrier()
                if self._reading.applied.tube(source) is None:
                    raise tube_not_found(source)

    async def session(self, session_id: str, caller: Caller) -> None:
        """See ``Known``."""
        if session_id and not owns_session(self._reading.applied, session_id, caller):
            await self._reading.barrier()
            if not owns_session(self._reading.applied, session_id, caller):
                raise Refused(error_pb2.Error.SESSION_NOT_FOUND, "there is no such session", {})


class TaskApi:
    """The handlers of TaskService that answer one request with one response."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it joins
        self,
        mutations: Mutations,
        reading: Reading,
        known: Known,
        waiters: Waiters,
        notes: CallNotes,
        disk: DiskRoom,
        outcomes: OutcomeApi,
        settings: TaskSettings,
    ) -> None:
        self._mutations = mutations
        self._reading = reading
        self._known = known
        self._waiters = waiters
        self._notes = notes
        self._submitter = mutations.submitter
        self._disk = disk
        self._outcomes = outcomes
        self._settings = settings
        self._give_back = LeaseReturns(mutations.submitter)
        self._missing = MissingTubes(reading, settings.in_force)
        self._batches = BatchApi(
            mutations, reading, disk, self._missing, settings.payload_bytes_max
        )

    def servicer(self, subscribe: StreamMethod) -> Servicer:
        """Return the methods of the service; ``subscribe`` serves the streaming one."""
        return Servicer(
            SERVICE,
            (
                Unary("PutTasks", pb.PutTasksRequest, Route.LEADER, self.put_tasks),
                self._outcomes.wait_tasks_method(),
                self._batches.method(),
                Unary("TakeTasks", pb.TakeTasksRequest, Route.LEADER, self.take_tasks),
                Unary("SettleTasks", pb.SettleTasksRequest, Route.LEADER, self.settle_tasks),
                *chosen_tasks(self._mutations, self._disk, self._settings.payload_bytes_max),
                Unary(
                    "GetTasks",
                    pb.GetTasksRequest,
                    Route.FRESH,
                    self.get_tasks,
                    lambda request: self._reading.is_here(request.consistency, [request.tube]),
                ),
                Unary(
                    "ListTasks",
                    pb.ListTasksRequest,
                    Route.FRESH,
                    self.list_tasks,
                    lambda request: self._reading.is_here(request.consistency, [request.tube]),
                ),
            ),
            streams={"Subscribe": subscribe},
            readings={},
        )

    # ------------------------------------------------------------------------------ put

    async def put_tasks(self, call: Call[pb.PutTasksRequest]) -> pb.PutTasksResponse | bytes:
        """Put tasks, and wait for their outcomes if that is asked for."""
        task_checks.check_put(call.request, call.raw, self._settings.payload_bytes_max)
        if call.request.outcome_wait_ms:
            return await self._outcomes.put_and_wait(call, self._put)
        return await self._put(call)

    async def _put(self, call: Call[pb.PutTasksRequest]) -> pb.PutTasksResponse:
        """Put tasks; with automatic creation, make their tube first, in the same entry."""
        self._disk.check_tubes((call.request.tube,))
        if call.request.room_wait_ms:
            outcome = await put_when_room(self._outcomes.rooms, call, self._propose_put)
        else:
            outcome = await self._mutations.apply(forms.PUT, call, self._missing_tube(call))
        put = result_of(outcome, PutResult)
        return pb.PutTasksResponse(
            task_ids=put.ids,
            errors=item_errors(put.refused),
            existing=put.existing,
            revision=outcome.index,
        )

    async def _propose_put(self, call: Call[pb.PutTasksRequest], *, whole: bool) -> Outcome:
        """Put all or nothing, or (``whole`` False) what there is room for.

        A call may have waited for a minute: the disk is looked at again.
        """
        self._disk.check_tubes((call.request.tube,))
        if whole:
            return await self._mutations.apply(forms.PUT, call, self._missing_tube(call))
        request = pb.PutTasksRequest()
        request.CopyFrom(call.request)
        request.ClearField("room_wait_ms")
        hash_of_request = hash_if_named(call)
        recorded = record_own(forms.PUT, request, hash_of_request)
        return await self._mutations.propose(recorded, call.deadline)

    def _missing_tube(self, call: Call[pb.PutTasksRequest]) -> Sequence[Recorded]:
        return self._missing.creations((call.request.tube,), call.request.request_id)

    # ------------------------------------------------------------------------------ take

    async def take_tasks(self, call: Call[pb.TakeTasksRequest]) -> bytes:
        """Take tasks, or wait for some."""
        request = call.request
        task_checks.check_take(request)
        sources = [source.tube for source in request.sources]
        await self._known.tubes(sources)
        await self._known.session(request.session_id, call.caller)
        hash_of_request = hash_if_named(call)
        taker = WaitingTake(request, hash_of_request, self._give_back, call.caller)
        wait_ms = request.wait_ms if request.HasField("wait_ms") else None
        wait = wait_seconds(wait_ms, call)
        outcome = await self._take_at_once(call, taker, wait)
        if outcome is None:
            outcome = await self._wait(taker, wait)
        if not result_of(outcome, TakeResult).tasks:
            self._notes.took_in_vain(self._existing(taker))
        bytes_max = (request.bytes_max or TAKE_BYTES_DEFAULT) + TAKE_BYTES_BESIDE
        answer = TakeAnswer(outcome, bytes_max, payload_omit=request.payload_omit)
        if answer.left_out:
            self._give_back(answer.left_out)
        return answer.raw

    async def _take_at_once(
        self, call: Call[pb.TakeTasksRequest], taker: WaitingTake, wait: float
    ) -> Outcome | None:
        """Take without a place in line where that is asked for; None: the call has to wait.

        A request_id may belong to a take that was answered before, so it is looked up in the log's
        order first. A chosen task is taken now or not at all.
        """
        chosen = call.request.HasField("task_id")
        if wait > 0 and not chosen and not call.request.request_id:
            return None
        names = self._existing(taker)
        recorded = taker.narrowed(names, call.request.tasks_max or 1)
        outcome = await self._mutations.propose(recorded, call.deadline)
        if wait <= 0 or chosen or result_of(outcome, TakeResult).tasks:
            return outcome
        return None

    def _existing(self, taker: WaitingTake) -> list[str]:
        """Return the tubes that a call's sources name, in order of the sources, each once."""
        queue = self._reading.applied
        found: dict[str, None] = {}
        for source in taker.sources:
            if is_pattern(source):
                pattern = matcher(source)
                for tube in queue.tubes():
                    if pattern.fullmatch(tube.name) and taker.allows(tube.name):
                        found[tube.name] = None
            elif queue.tube(source) is not None:
                found[source] = None
        return list(found)

    async def _wait(self, taker: WaitingTake, wait: float) -> Outcome:
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
        return Outcome(queue.applied_index, self._reading.now_ms(), TakeResult(()))

    # ------------------------------------------------------------------------------ settle

    async def settle_tasks(self, call: Call[pb.SettleTasksRequest]) -> pb.SettleTasksResponse:
        """Settle leases."""
        check_settle(call.request, self._settings.payload_bytes_max)
        own = own_settlements(self._reading.contents, call.request, call.caller)
        outcome = await self._mutations.apply_as(forms.SETTLE, call, own)
        settled = result_of(outcome, SettleResult)
        return pb.SettleTasksResponse(
            errors=item_errors(settled.refused),
            touched=[
                pb.TouchedLease(
                    token=lease.token,
                    lease_until_ms=lease.lease_until_ms,
                    cancel_requested=lease.cancel_requested,
                )
                for lease in settled.touched
            ],
            revision=outcome.index,
        )

    # ------------------------------------------------------------------------------ reads

    async def get_tasks(self, call: Call[pb.GetTasksRequest]) -> bytes:
        """Show chosen tasks."""
        request = call.request
        check_get(request)
        queue = await self._reading.queue(request.consistency)
        if queue.tube(request.tube) is None:
            raise tube_not_found(request.tube)
        selector = selector_of(request.selector)
        assert not isinstance(selector, ByFilter)
        contents = self._reading.contents.of(request.tube)
        found = contents.select_tasks(request.tube, selector)
        answer = pb.GetTasksResponse(revision=queue.applied_index, now_ms=self._reading.now_ms())
        shown: list[TaskView] = []
        for item, one in enumerate(found):
            if isinstance(one, Refusal):
                answer.errors.add(item=item, error=error_message(one))
            else:
                shown.append(one)
        self._notes.looked_at(request.tube, len(shown), payload_omit=request.payload_omit)
        failed: list[TaskView] = []
        if answer.errors:
            gone = contents.failed_tasks(request.tube, selector)
            failed = [with_key(view) for view in gone if view is not None]
        return b"".join(
            (
                answer.SerializeToString(),
                _show(shown, payload_omit=request.payload_omit),
                *encode_tasks(failed, _FAILED),
            )
        )

    async def list_tasks(self, call: Call[pb.ListTasksRequest]) -> bytes:
        """List tasks by id."""
        request = call.request
        check_list(request)
        queue = await self._reading.queue(request.consistency)
        tube = queue.tube(request.tube)
        if tube is None:
            raise tube_not_found(request.tube)
        page = await page_of_tasks(self._reading, tube, request)
        answer = pb.ListTasksResponse(
            next_page_token=page.next_token, revision=page.revision, now_ms=page.now_ms
        )
        return answer.SerializeToString() + _show(page.tasks, payload_omit=request.payload_omit)


def _show(views: Sequence[TaskView], *, payload_omit: bool) -> bytes:
    encoded = encode_tasks(views, _SHOWN, payload_omit=payload_omit, secret=True)
    return b"".join(encoded)
