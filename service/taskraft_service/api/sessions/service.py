"""Serve SessionService."""

from __future__ import annotations

import uuid
from typing import Final

from taskraft.v1 import session_service_pb2 as pb
from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import own_session, own_sessions
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.methods import ExecutionSite, ServiceMethods, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.state.command_executor import CommandExecutor, idempotency_hash, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import SECRET_PREFIX, session_message
from taskraft_service.api.tubes.checks import (
    check_close_session,
    check_keep_sessions,
    check_open_session,
    check_page,
)
from taskraft_service.command_codecs.sessions import CLOSE_SESSION, KEEP_SESSIONS, OPEN_SESSION
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.count_result import CountResult
from taskraft_service.queue.entities.session_view import SessionView
from taskraft_service.queue.operations.sessions import KeepResult, SessionResult

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SessionService"]


class SessionService:
    """The handlers of SessionService."""

    def __init__(self, mutations: CommandExecutor, reading: QueueReader) -> None:
        self._mutations = mutations
        self._reading = reading

    def methods(self) -> ServiceMethods:
        """Return the methods of the service."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "OpenSession", pb.OpenSessionRequest, ExecutionSite.LEADER, self.open_session
                ),
                UnaryMethod(
                    "KeepSessions", pb.KeepSessionsRequest, ExecutionSite.LEADER, self.keep_sessions
                ),
                UnaryMethod(
                    "CloseSession", pb.CloseSessionRequest, ExecutionSite.LEADER, self.close_session
                ),
                UnaryMethod(
                    "ListSessions",
                    pb.ListSessionsRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.list_sessions,
                    lambda request: self._reading.is_local(request.consistency),
                ),
            ),
            bidirectional={},
            server_streaming={},
        )

    async def open_session(self, call: UnaryCall[pb.OpenSessionRequest]) -> pb.OpenSessionResponse:
        """Open a session under an id drawn here."""
        check_open_session(call.request)
        drawn = log_pb2.OpenSession(
            request=call.request,
            session_id=str(uuid.uuid4()),
            as_settings=not call.request.ttr_ms,
            owner=call.caller.name,
        )
        hash_of_request = idempotency_hash(call)
        encoded = encode_leader_command(OPEN_SESSION, drawn, hash_of_request)
        outcome = await self._mutations.propose(encoded, call.deadline)
        opened = result_of(outcome, SessionResult)
        session = session_message(opened.session)
        return pb.OpenSessionResponse(session=session, revision=outcome.index)

    async def keep_sessions(
        self, call: UnaryCall[pb.KeepSessionsRequest]
    ) -> pb.KeepSessionsResponse:
        """Prolong sessions."""
        check_keep_sessions(call.request)
        own = own_sessions(self._reading.applied, call.request, call.caller)
        outcome = await self._mutations.apply_as(KEEP_SESSIONS, call, own)
        kept = result_of(outcome, KeepResult)
        queues = self._reading.queues
        return pb.KeepSessionsResponse(
            sessions=[
                session_message(view) for view in queues.with_temporary_leases(kept.sessions)
            ],
            errors=item_errors(kept.refused),
            cancel_tokens=[
                token for view in kept.sessions for token in queues.cancelled(view.session_id)
            ],
        )

    async def close_session(
        self, call: UnaryCall[pb.CloseSessionRequest]
    ) -> pb.CloseSessionResponse:
        """Close a session."""
        check_close_session(call.request)
        own = own_session(self._reading.applied, call.request, call.caller)
        outcome = await self._mutations.apply_as(CLOSE_SESSION, call, own)
        released = result_of(outcome, CountResult).count
        return pb.CloseSessionResponse(released=released, revision=outcome.index)

    async def list_sessions(
        self, call: UnaryCall[pb.ListSessionsRequest]
    ) -> pb.ListSessionsResponse:
        """List sessions by their ids."""
        check_page(call.request)
        await self._reading.queue(call.request.consistency)
        page, next_token = page_of(
            [view for view in self._reading.queues.sessions() if self._may_see(view, call.caller)],
            # What a token holds can be read, and whole ids are secrets.
            lambda view: view.session_id[:SECRET_PREFIX],
            call.request.page_size or PAGE_SIZE_MAX,
            call.request.page_token,
            list_fingerprint("sessions"),
        )
        return pb.ListSessionsResponse(
            sessions=[session_message(view, secret=True) for view in page],
            next_page_token=next_token,
        )

    @staticmethod
    def _may_see(view: SessionView, caller: Caller) -> bool:
        """Tell whether a session is the caller's, or the caller looks after the whole cluster."""
        return caller.owns(view.owner) or caller.may(Verb.MANAGE, ALL_TUBES)
