"""Serve SessionService."""

from __future__ import annotations

import uuid
from typing import Final

from taskraft.v1 import session_service_pb2 as pb
from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service import forms
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import own_session, own_sessions
from taskraft_service.access.rights import EVERYWHERE, Verb
from taskraft_service.api.rpc.methods import Call, Route, Servicer, Unary
from taskraft_service.api.rpc.paging import mark_of, page_of
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.state.mutations import Mutations, hash_if_named, result_of
from taskraft_service.api.state.reading import Reading
from taskraft_service.api.tasks.answers import SECRET_PREFIX, session_message
from taskraft_service.api.tubes.checks import (
    check_close_session,
    check_keep_sessions,
    check_open_session,
    check_page,
)
from taskraft_service.entries.codec import record_own
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.commands import CountResult, KeepResult, SessionResult, SessionView

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SessionService"]


class SessionApi:
    """The handlers of SessionService."""

    def __init__(self, mutations: Mutations, reading: Reading) -> None:
        self._mutations = mutations
        self._reading = reading

    def servicer(self) -> Servicer:
        """Return the methods of the service."""
        return Servicer(
            SERVICE,
            (
                Unary("OpenSession", pb.OpenSessionRequest, Route.LEADER, self.open_session),
                Unary("KeepSessions", pb.KeepSessionsRequest, Route.LEADER, self.keep_sessions),
                Unary("CloseSession", pb.CloseSessionRequest, Route.LEADER, self.close_session),
                Unary(
                    "ListSessions",
                    pb.ListSessionsRequest,
                    Route.FRESH,
                    self.list_sessions,
                    lambda request: self._reading.is_local(request.consistency),
                ),
            ),
            streams={},
            readings={},
        )

    async def open_session(self, call: Call[pb.OpenSessionRequest]) -> pb.OpenSessionResponse:
        """Open a session under an id drawn here."""
        check_open_session(call.request)
        drawn = log_pb2.OpenSession(
            request=call.request,
            session_id=str(uuid.uuid4()),
            as_settings=not call.request.ttr_ms,
            owner=call.caller.name,
        )
        hash_of_request = hash_if_named(call)
        recorded = record_own(forms.OPEN_SESSION, drawn, hash_of_request)
        outcome = await self._mutations.propose(recorded, call.deadline)
        opened = result_of(outcome, SessionResult)
        session = session_message(opened.session)
        return pb.OpenSessionResponse(session=session, revision=outcome.index)

    async def keep_sessions(self, call: Call[pb.KeepSessionsRequest]) -> pb.KeepSessionsResponse:
        """Prolong sessions."""
        check_keep_sessions(call.request)
        own = own_sessions(self._reading.applied, call.request, call.caller)
        outcome = await self._mutations.apply_as(forms.KEEP_SESSIONS, call, own)
        kept = result_of(outcome, KeepResult)
        contents = self._reading.contents
        return pb.KeepSessionsResponse(
            sessions=[session_message(view) for view in contents.everywhere(kept.sessions)],
            errors=item_errors(kept.refused),
            cancel_tokens=[
                token for view in kept.sessions for token in contents.cancelled(view.session_id)
            ],
        )

    async def close_session(self, call: Call[pb.CloseSessionRequest]) -> pb.CloseSessionResponse:
        """Close a session."""
        check_close_session(call.request)
        own = own_session(self._reading.applied, call.request, call.caller)
        outcome = await self._mutations.apply_as(forms.CLOSE_SESSION, call, own)
        released = result_of(outcome, CountResult).count
        return pb.CloseSessionResponse(released=released, revision=outcome.index)

    async def list_sessions(self, call: Call[pb.ListSessionsRequest]) -> pb.ListSessionsResponse:
        """List sessions by their ids."""
        check_page(call.request)
        await self._reading.queue(call.request.consistency)
        page, next_token = page_of(
            [
                view
                for view in self._reading.contents.sessions()
                if self._may_see(view, call.caller)
            ],
            # What a token holds can be read, and whole ids are secrets.
            lambda view: view.session_id[:SECRET_PREFIX],
            call.request.page_size or PAGE_SIZE_MAX,
            call.request.page_token,
            mark_of("sessions"),
        )
        return pb.ListSessionsResponse(
            sessions=[session_message(view, secret=True) for view in page],
            next_page_token=next_token,
        )

    @staticmethod
    def _may_see(view: SessionView, caller: Caller) -> bool:
        """Tell whether a session is the caller's, or the caller looks after the whole cluster."""
        return caller.owns(view.owner) or caller.may(Verb.MANAGE, EVERYWHERE)
