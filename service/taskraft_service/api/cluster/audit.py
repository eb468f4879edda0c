"""ListAudit and GetCaller: the acts of management, and the permissions of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.paging import (
    key_of_token,
    list_fingerprint,
    page_token_refused,
    token_after,
)
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.queue.state.audit_table import AuditRecord
from taskraft_service.turns import next_turn

EXAMINED_MAX: Final = 2_000
"""Maximum number of acts that one call examines."""
EXAMINED_AT_ONCE: Final = 100
"""Maximum number of acts that one turn of the event loop examines; each may have 20 names."""
PAGE_DEFAULT: Final = 100
NEWEST: Final = (1 << 63) - 1


class AuditHandlers:
    """The handlers of ListAudit and GetCaller, methods of ClusterService."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    def methods(self) -> Sequence[AnyUnaryMethod]:
        """Return the methods."""
        return (
            UnaryMethod(
                "ListAudit",
                pb.ListAuditRequest,
                ExecutionSite.BY_CONSISTENCY,
                self.list_audit,
                lambda request: self._reader.is_local(request.consistency),
            ),
            UnaryMethod("GetCaller", pb.GetCallerRequest, ExecutionSite.ANY_NODE, self.get_caller),
        )

    async def get_caller(self, call: UnaryCall[pb.GetCallerRequest]) -> pb.GetCallerResponse:
        """Return the principal and its grants."""
        grants = [pb.Grant(role=one.role, tubes=one.tubes) for one in call.caller.grants()]
        return pb.GetCallerResponse(principal=call.caller.name, grants=grants)

    async def list_audit(self, call: UnaryCall[pb.ListAuditRequest]) -> pb.ListAuditResponse:
        """Return a page of the acts on names that the caller may manage, newest first.

        Raises:
            CallRefused: INVALID_FIELD.
        """
        request = call.request
        violations = Violations()
        violations.check_page(request.page_size, request.page_token)
        violations.check_consistency(request.consistency)
        violations.raise_if_any()
        fingerprint = list_fingerprint("audit", request.principal, request.call, request.name)
        before = _before(request.page_token, fingerprint)
        await self._reader.queue(request.consistency)
        size = request.page_size or PAGE_DEFAULT
        shown: list[pb.AuditRecord] = []
        last, examined, has_more = before, 0, True
        while has_more and examined < EXAMINED_MAX and len(shown) < size:
            if examined:
                await next_turn()
            records = self._reader.applied.audit_records
            for number, record in islice(records(last), EXAMINED_AT_ONCE):
                last = number
                examined += 1
                if _is_wanted(record, request) and _may_see(call.caller, record):
                    shown.append(_message(record))
                    if len(shown) == size:
                        break
            has_more = next(records(last), None) is not None
        return pb.ListAuditResponse(
            records=shown,
            next_page_token=token_after(f"{fingerprint}:{last}") if has_more else "",
        )


def _before(token: str, fingerprint: str) -> int:
    """Return the number below which a page begins.

    Raises:
        CallRefused: INVALID_FIELD, the token is of another list.
    """
    if not token:
        return NEWEST
    own, _, number = key_of_token(token).partition(":")
    if own != fingerprint or not number.isdecimal():
        raise page_token_refused()
    return int(number)


def _is_wanted(record: AuditRecord, request: pb.ListAuditRequest) -> bool:
    act = record.act
    return (
        (not request.principal or act.principal == request.principal)
        and (not request.call or act.call == request.call)
        and (not request.name or request.name in act.names)
    )


def _may_see(caller: Caller, record: AuditRecord) -> bool:
    return all(caller.may(Verb.MANAGE, name) for name in record.act.names)


def _message(record: AuditRecord) -> pb.AuditRecord:
    act = record.act
    return pb.AuditRecord(
        at_ms=record.at_ms,
        revision=record.index,
        principal=act.principal,
        peer=act.peer,
        call=act.call,
        names=act.names,
        detail=act.detail,
        tasks=record.tasks,
        refused=error_pb2.Error.Reason.ValueType(record.refused),
    )
