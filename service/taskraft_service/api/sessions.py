"""SessionService: open, keep, close and list sessions."""

from __future__ import annotations

import uuid
from collections.abc import MutableSequence, Sequence
from typing import Final

from taskraft.v1 import session_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.leases import SHOWN_SESSION_ID_LENGTH, own_session, own_sessions
from taskraft_service.api.rpc.methods import ExecutionSite, ServiceMethods, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import list_fingerprint, page_of
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.rpc.violations import Violations, check_page_request
from taskraft_service.api.state.command_executor import CommandExecutor, request_key, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.state.session_search import SessionSearch, check_session_search
from taskraft_service.api.tasks.answers import encode_leases
from taskraft_service.command_codecs.sessions import CLOSE_SESSION, KEEP_SESSIONS, OPEN_SESSION
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.limits import PAGE_SIZE_MAX
from taskraft_service.queue.entities.instants import in_wall_time
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.entities.session import SessionView
from taskraft_service.queue.operations.sessions import KeepResult, SessionResult
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.turns import next_turn

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SessionService"]
CANCELLED_AT_ONCE: Final = 10_000
"""Number of cancelled leases after which KeepSessions lets the event loop run other calls."""
TOKEN_DIGITS: Final = 20
"""Digits of a lease token in a page token, so that tokens are ordered as texts."""


class SessionService:
    """The handlers of SessionService."""

    def __init__(self, executor: CommandExecutor, reader: QueueReader) -> None:
        self._executor = executor
        self._reader = reader
        self._search = SessionSearch(reader)

    def methods(self) -> ServiceMethods:
        """Return the methods of SessionService."""
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
                    lambda request: self._reader.is_local(request.consistency),
                ),
                UnaryMethod(
                    "ListLeases",
                    pb.ListLeasesRequest,
                    ExecutionSite.BY_CONSISTENCY,
                    self.list_leases,
                    lambda request: self._reader.is_local(request.consistency),
                ),
            ),
            bidirectional={},
            server_streaming={},
        )

    async def open_session(self, call: UnaryCall[pb.OpenSessionRequest]) -> pb.OpenSessionResponse:
        """Open a session under a random id."""
        _check_open(call.request)
        command = log_pb2.OpenSession(
            request=call.request,
            session_id=str(uuid.uuid4()),
            as_settings=not call.request.ttr_ms,
            owner=call.caller.name,
        )
        encoded = encode_leader_command(OPEN_SESSION, command, request_key(call))
        outcome = await self._executor.execute_encoded(encoded, call.deadline)
        opened = result_of(outcome, SessionResult)
        session = _session_message(opened.session, outcome.wall_offset_ms)
        return pb.OpenSessionResponse(session=session, revision=outcome.index)

    async def keep_sessions(
        self, call: UnaryCall[pb.KeepSessionsRequest]
    ) -> pb.KeepSessionsResponse:
        """Extend sessions, and return the cancellation requests for their tasks."""
        _check_keep(call.request)
        own = own_sessions(self._reader.applied, call.request, call.caller)
        outcome = await self._executor.execute_changed(KEEP_SESSIONS, call, own)
        kept = result_of(outcome, KeepResult)
        offset_ms = outcome.wall_offset_ms
        answer = pb.KeepSessionsResponse(
            sessions=await call.steps.in_slices(
                self._reader.queues.with_temporary_leases(kept.sessions),
                lambda view: _session_message(view, offset_ms),
                MESSAGE_STEPS,
            ),
            errors=item_errors(kept.refused),
        )
        await self._add_cancelled(answer.cancel_tokens, kept.sessions)
        return answer

    async def _add_cancelled(
        self, tokens: MutableSequence[int], sessions: Sequence[SessionView]
    ) -> None:
        """Add the cancelled leases of some sessions, up to ``CANCEL_TOKENS_MAX``, in slices.

        Each session gets an equal share of the maximum, and what the sessions before it left over.
        """
        added = 0
        for place, view in enumerate(sessions):
            share = (limits.CANCEL_TOKENS_MAX - len(tokens)) // (len(sessions) - place)
            cancelled = self._reader.queues.cancelled(view.session_id, share)
            tokens.extend(cancelled)
            added += 1 + len(cancelled)
            if added >= CANCELLED_AT_ONCE:
                added = 0
                await next_turn()

    async def close_session(
        self, call: UnaryCall[pb.CloseSessionRequest]
    ) -> pb.CloseSessionResponse:
        """Close a session and release its leases."""
        _check_close(call.request)
        own = own_session(self._reader.applied, call.request, call.caller)
        outcome = await self._executor.execute_changed(CLOSE_SESSION, call, own)
        released = result_of(outcome, CountResult).count
        return pb.CloseSessionResponse(released=released, revision=outcome.index)

    async def list_sessions(
        self, call: UnaryCall[pb.ListSessionsRequest]
    ) -> pb.ListSessionsResponse:
        """List the caller's sessions by id; a cluster admin sees all sessions."""
        check_page_request(call.request)
        await self._reader.queue(call.request.consistency)
        page, next_token = page_of(
            await self._search.ids("", call),
            # Callers can decode page tokens, and whole session ids are secrets.
            lambda session_id: session_id[:SHOWN_SESSION_ID_LENGTH],
            call.request.page_size or PAGE_SIZE_MAX,
            call.request.page_token,
            list_fingerprint("sessions"),
        )
        queues, offset_ms = self._reader.queues, self._reader.wall_offset_ms
        views = [view for one in page if (view := queues.session(one)) is not None]
        return pb.ListSessionsResponse(
            sessions=await call.steps.in_slices(
                views,
                lambda view: _session_message(view, offset_ms, shorten_id=True),
                MESSAGE_STEPS,
            ),
            next_page_token=next_token,
        )

    async def list_leases(self, call: UnaryCall[pb.ListLeasesRequest]) -> pb.ListLeasesResponse:
        """List the tasks of a session in all tubes, in the order of their takes.

        Raises:
            CallRefused: SESSION_NOT_FOUND, INVALID_FIELD.
        """
        request = call.request
        _check_list_leases(request)
        await self._reader.queue(request.consistency)
        session = await self._search.find(request.session_id, call)
        queues, wall_offset_ms = self._reader.queues, self._reader.wall_offset_ms
        page, next_token = page_of(
            queues.lease_tokens(session.session_id),
            lambda token: f"{token:0{TOKEN_DIGITS}}",
            request.page_size or PAGE_SIZE_MAX,
            request.page_token,
            list_fingerprint("leases", session.session_id),
        )
        answer = pb.ListLeasesResponse(
            session=_session_message(session, wall_offset_ms, shorten_id=True),
            next_page_token=next_token,
            now_ms=self._reader.wall_now_ms(),
        )
        field = pb.ListLeasesResponse.TASKS_FIELD_NUMBER
        leases = encode_leases(queues, page, field, wall_offset_ms, shorten_session=True)
        async for tasks in leases:
            answer.MergeFromString(b"".join(tasks))
        return answer


def _session_message(
    view: SessionView, wall_offset_ms: int, *, shorten_id: bool = False
) -> pb.Session:
    """Return a session as a message; ``shorten_id`` shows only the prefix of its id."""
    session_id = view.session_id[:SHOWN_SESSION_ID_LENGTH] if shorten_id else view.session_id
    return pb.Session(
        session_id=session_id,
        name=view.name,
        ttr_ms=view.ttr_ms,
        expires_ms=in_wall_time(view.expires_ms, wall_offset_ms),
        taken=view.taken,
        created_ms=in_wall_time(view.created_ms, wall_offset_ms),
        owner=view.owner,
        labels=dict(view.labels),
    )


def _check_open(request: pb.OpenSessionRequest) -> None:
    """Check a new session."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_text("name", request.name, limits.NAME_BYTES_MAX)
    violations.check_labels("labels", request.labels)
    if request.ttr_ms:
        low, high = limits.SESSION_TTR_MIN_MS, limits.SESSION_TTR_MAX_MS
        violations.check_range("ttr_ms", request.ttr_ms, low, high)
    violations.raise_if_any()


def _check_keep(request: pb.KeepSessionsRequest) -> None:
    """Check the ids of sessions."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_nonempty("session_ids", request.session_ids, limits.SESSIONS_PER_KEEP_MAX)
    for place, session_id in enumerate(request.session_ids):
        violations.check_session_id(f"session_ids[{place}]", session_id)
    violations.raise_if_any()


def _check_list_leases(request: pb.ListLeasesRequest) -> None:
    """Check a list of leases."""
    violations = Violations()
    check_session_search(violations, "session_id", request.session_id)
    violations.check_page(request.page_size, request.page_token)
    violations.check_consistency(request.consistency)
    violations.raise_if_any()


def _check_close(request: pb.CloseSessionRequest) -> None:
    """Check the id of a session."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_session_id("session_id", request.session_id)
    violations.raise_if_any()
