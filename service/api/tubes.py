"""Serve TubeService."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from service import forms
from service.access.rights import Verb
from service.api.answers import statistics_message, total_message
from service.api.method import Call, Route, Servicer, Unary
from service.api.mutations import Mutations, hash_if_named, result_of
from service.api.paging import mark_of, page_of
from service.api.reading import Reading
from service.api.status import Refused
from service.api.tube_answers import tube_message
from service.api.tube_checks import (
    check_create_tube,
    check_page,
    check_tube_name,
    check_update_tube,
)
from service.entries.codec import record_own
from service.languages.patterns import matcher
from service.leader.call_notes import CallNotes
from service.leader.proposal import Outcome
from service.leader.waiters import Waiters
from service.limits import PAGE_SIZE_MAX
from service.queue.commands import CountResult, TubeResult
from taskraft.v1 import error_pb2
from taskraft.v1 import tube_service_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["TubeService"]


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match one of the patterns; all of them if there is no pattern."""
    if not patterns:
        return list(names)
    matchers: list[re.Pattern[str]] = [matcher(pattern) for pattern in patterns]
    return [name for name in names if any(one.fullmatch(name) for one in matchers)]


class TubeApi:
    """The handlers of TubeService."""

    def __init__(
        self,
        mutations: Mutations,
        reading: Reading,
        waiters: Waiters,
        notes: CallNotes,
        creates_tubes: Callable[[], bool],
    ) -> None:
        """Serve tubes; ``creates_tubes`` tells whether a put makes the tubes that do not exist."""
        self._mutations = mutations
        self._reading = reading
        self._waiters = waiters
        self._notes = notes
        self._creates_tubes = creates_tubes

    def servicer(self) -> Servicer:
        """Return the methods of the service."""
        return Servicer(
            SERVICE,
            (
                Unary("CreateTube", pb.CreateTubeRequest, Route.LEADER, self.create_tube),
                Unary("UpdateTube", pb.UpdateTubeRequest, Route.LEADER, self.update_tube),
                Unary("DropTube", pb.DropTubeRequest, Route.LEADER, self.drop_tube),
                Unary("TruncateTube", pb.TruncateTubeRequest, Route.LEADER, self.truncate_tube),
                Unary("ReleaseAll", pb.ReleaseAllRequest, Route.LEADER, self.release_all),
                Unary(
                    "ListTubes",
                    pb.ListTubesRequest,
                    Route.FRESH,
                    self.list_tubes,
                    lambda request: self._reading.is_local(request.consistency),
                ),
                Unary(
                    "GetStatistics",
                    pb.GetStatisticsRequest,
                    Route.FRESH,
                    self.get_statistics,
                    lambda request: self._reading.is_here(
                        request.consistency, request.tubes or ("*",)
                    ),
                ),
            ),
            streams={},
            readings={},
        )

    async def create_tube(self, call: Call[pb.CreateTubeRequest]) -> pb.CreateTubeResponse:
        """Create a tube."""
        check_create_tube(call.request)
        if call.request.tube.kind == pb.Tube.CUSTOM:
            outcome = await self._create_custom(call)
        else:
            outcome = await self._mutations.apply(forms.CREATE_TUBE, call)
        created = result_of(outcome, TubeResult)
        tube = tube_message(created.tube)
        return pb.CreateTubeResponse(tube=tube, existed=created.existed, revision=outcome.index)

    async def _create_custom(self, call: Call[pb.CreateTubeRequest]) -> Outcome:
        """Create a tube whose driver is installed here; its version stands in the log."""
        request = pb.CreateTubeRequest()
        request.CopyFrom(call.request)
        drivers = self._reading.applied.drivers
        found = drivers.get(request.tube.driver)
        version = request.tube.driver_version
        if found is None or version not in (0, found.version):
            installed = ", ".join(f"{name} {one.version}" for name, one in sorted(drivers.items()))
            raise Refused(
                error_pb2.Error.DRIVER_MISSING,
                f"the leader has no driver {request.tube.driver!r} {version or ''}".rstrip(),
                {"driver": request.tube.driver, "installed": installed},
            )
        request.tube.driver_version = found.version
        hash_of_request = hash_if_named(call)
        recorded = record_own(forms.CREATE_TUBE, request, hash_of_request)
        return await self._mutations.propose(recorded, call.deadline)

    async def update_tube(self, call: Call[pb.UpdateTubeRequest]) -> pb.UpdateTubeResponse:
        """Change options of a tube."""
        check_update_tube(call.request, self._reading.applied.faults_of_update)
        outcome = await self._mutations.apply(forms.UPDATE_TUBE, call)
        updated = result_of(outcome, TubeResult)
        return pb.UpdateTubeResponse(tube=tube_message(updated.tube), revision=outcome.index)

    async def drop_tube(self, call: Call[pb.DropTubeRequest]) -> pb.DropTubeResponse:
        """Remove a tube; the leader alone knows of consumers that wait on it."""
        check_tube_name(call.request.name, call.request.request_id)
        name, queue = call.request.name, self._reading.applied
        waiting = self._waiters.waiting(name)
        is_repeated = queue.remembers(call.request.request_id)
        if waiting and not call.request.force and not is_repeated and queue.tube(name):
            raise Refused(
                error_pb2.Error.TUBE_BUSY,
                f"the tube has {waiting} waiting consumers",
                {"tube": name, "waiting": str(waiting)},
            )
        outcome = await self._mutations.apply(forms.DROP_TUBE, call)
        # A repeated drop is about a tube of before; another may have its name now.
        if self._reading.applied.tube(name) is None and not self._creates_tubes():
            self._waiters.dropped(name)
        return pb.DropTubeResponse(
            tasks=result_of(outcome, CountResult).count, revision=outcome.index
        )

    async def truncate_tube(self, call: Call[pb.TruncateTubeRequest]) -> pb.TruncateTubeResponse:
        """Remove all tasks of a tube."""
        check_tube_name(call.request.name, call.request.request_id)
        outcome = await self._mutations.apply(forms.TRUNCATE_TUBE, call)
        return pb.TruncateTubeResponse(
            tasks=result_of(outcome, CountResult).count, revision=outcome.index
        )

    async def release_all(self, call: Call[pb.ReleaseAllRequest]) -> pb.ReleaseAllResponse:
        """Release all taken tasks of a tube."""
        check_tube_name(call.request.name, call.request.request_id)
        outcome = await self._mutations.apply(forms.RELEASE_ALL, call)
        return pb.ReleaseAllResponse(
            tasks=result_of(outcome, CountResult).count, revision=outcome.index
        )

    async def list_tubes(self, call: Call[pb.ListTubesRequest]) -> pb.ListTubesResponse:
        """List tubes by name."""
        request = call.request
        check_page(request, "names", request.names)
        queue = await self._reading.queue(request.consistency)
        tubes = {tube.name: tube for tube in queue.tubes() if call.caller.may(Verb.READ, tube.name)}
        page, next_token = page_of(
            _chosen(list(tubes), request.names),
            lambda name: name,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            mark_of("tubes", *request.names),
        )
        return pb.ListTubesResponse(
            tubes=[tube_message(tubes[name]) for name in page], next_page_token=next_token
        )

    async def get_statistics(self, call: Call[pb.GetStatisticsRequest]) -> pb.GetStatisticsResponse:
        """Count tasks, calls and transitions: of a page of tubes, and of all together."""
        request = call.request
        check_page(request, "tubes", request.tubes)
        queue = await self._reading.queue(request.consistency)
        known = queue.tube_names()
        named = _chosen(known, request.tubes)
        names = [name for name in named if call.caller.may(Verb.READ, name)]
        page, next_token = page_of(
            names,
            lambda name: name,
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            mark_of("statistics", *request.tubes),
        )
        contents, waiting = self._reading.contents, self._waiters.waiting
        shown = [
            statistics_message(counts, waiting(counts.tube), transitions=request.transitions)
            for counts in contents.statistics(page)
        ]
        for one in shown:
            self._notes.add_to(one, (one.tube,))
        total = total_message(
            contents.total_statistics(None if len(names) == len(known) else names),
            sum(waiting(name) for name in names),
            transitions=request.transitions,
        )
        self._notes.add_to(total, names)
        return pb.GetStatisticsResponse(
            tubes=shown,
            total=total,
            now_ms=self._reading.now_ms(),
            revision=queue.applied_index,
            next_page_token=next_token,
        )
