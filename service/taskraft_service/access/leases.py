"""Prevent callers from using leases and sessions of another principal.

Lease tokens are sequential, so a caller can guess the token of a take that is still in flight. A
lookup is therefore not enough. Before a request is proposed, each token of another principal is
replaced by its negative, which no lease ever has. The queue answers that item with LEASE_STALE at
the same position, as for an expired lease. The changed request is proposed with the hash of the
original request, so a retry still gets the first answer, although the first call has ended the
leases.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from taskraft.v1 import session_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.queue import Queue

SHOWN_SESSION_ID_LENGTH: Final = 8
"""Length of the session id prefix that callers other than the owner see; whole ids are secrets."""
NO_SESSION: Final = str(uuid.UUID(int=0))
"""Id that no session has."""


def owns_session(queue: Queue, session_id: str, caller: Caller) -> bool:
    """Return whether a session exists and belongs to the caller."""
    view = queue.session(session_id)
    return view is not None and caller.owns(view.owner)


def foreign_leases(
    queues: QueueLocator, settlements: Iterable[pb.Settlement], caller: Caller
) -> frozenset[int]:
    """Return the tokens that are not leases, and the tokens of other principals' leases.

    A lease belongs to the owner of its session, and without a session to the principal that has
    taken the task. A caller who may no longer take from the tube loses access to both kinds of
    leases.
    """
    tokens = (token for settlement in settlements for token in settlement.tokens)
    return queues.strange_leases(tokens, lambda tube: caller.may(Verb.TAKE, tube), caller.owns)


def own_settlements(
    queues: QueueLocator, request: pb.SettleTasksRequest, caller: Caller
) -> pb.SettleTasksRequest:
    """Return the request, with the tokens of other principals negated."""
    if not caller.is_restricted:
        return request
    foreign = foreign_leases(queues, request.settlements, caller)
    if not foreign:
        return request
    own = pb.SettleTasksRequest()
    own.CopyFrom(request)
    _negate_tokens(own.settlements, foreign)
    return own


def own_batch(
    queues: QueueLocator, request: pb.ExecuteBatchRequest, caller: Caller
) -> pb.ExecuteBatchRequest:
    """Return the batch, with the tokens of other principals negated."""
    if not caller.is_restricted:
        return request
    settlements = [
        settlement
        for operation in request.operations
        for settlement in operation.settle.settlements
    ]
    foreign = foreign_leases(queues, settlements, caller)
    if not foreign:
        return request
    own = pb.ExecuteBatchRequest()
    own.CopyFrom(request)
    for operation in own.operations:
        if operation.HasField("settle"):
            _negate_tokens(operation.settle.settlements, foreign)
    return own


def own_sessions(
    queue: Queue, request: session_service_pb2.KeepSessionsRequest, caller: Caller
) -> session_service_pb2.KeepSessionsRequest:
    """Return the request with each session of another principal replaced by ``NO_SESSION``."""
    if not caller.is_restricted:
        return request
    own = session_service_pb2.KeepSessionsRequest(request_id=request.request_id)
    own.session_ids.extend(
        one if owns_session(queue, one, caller) else NO_SESSION for one in request.session_ids
    )
    return own


def own_session(
    queue: Queue, request: session_service_pb2.CloseSessionRequest, caller: Caller
) -> session_service_pb2.CloseSessionRequest:
    """Return the request; a session of another principal is replaced by ``NO_SESSION``."""
    if not caller.is_restricted or owns_session(queue, request.session_id, caller):
        return request
    own = session_service_pb2.CloseSessionRequest()
    own.CopyFrom(request)
    own.session_id = NO_SESSION
    return own


def _negate_tokens(settlements: Sequence[pb.Settlement], foreign: frozenset[int]) -> None:
    for settlement in settlements:
        if not foreign.isdisjoint(settlement.tokens):
            settlement.tokens[:] = [
                -abs(token) if token in foreign else token for token in settlement.tokens
            ]
