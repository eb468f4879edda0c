"""Keep callers away from leases and sessions that are not theirs.

Tokens of leases grow, so they can be guessed, also those of takes that are being done at this
moment. What is not the caller's is therefore not just looked up but taken out of the request before
it is proposed: its negative in its place is a lease that never was, and is answered like any other
stale one, at the same place of the list. It is proposed under the hash of what came, so that a
repetition, whose leases have ended by its first time, gets the first answer.
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

NO_SESSION: Final = str(uuid.UUID(int=0))


def owns_session(queue: Queue, session_id: str, caller: Caller) -> bool:
    """Tell whether a session exists and is the caller's."""
    view = queue.session(session_id)
    return view is not None and caller.owns(view.owner)


def foreign_leases(
    queues: QueueLocator, settlements: Iterable[pb.Settlement], caller: Caller
) -> frozenset[int]:
    """Return the tokens that are no leases, or not the caller's.

    A lease is the caller's if its session is, or, where it has none, if the caller may take from
    its tube; a right to the tube that was withdrawn ends both.
    """
    tokens = (token for settlement in settlements for token in settlement.tokens)
    return queues.strange_leases(tokens, lambda tube: caller.may(Verb.TAKE, tube), caller.owns)


def own_settlements(
    queues: QueueLocator, request: pb.SettleTasksRequest, caller: Caller
) -> pb.SettleTasksRequest:
    """Return a request with the leases of the caller only; the same one if there are no others."""
    if not caller.is_limited:
        return request
    strange = foreign_leases(queues, request.settlements, caller)
    if not strange:
        return request
    own = pb.SettleTasksRequest()
    own.CopyFrom(request)
    _negate_tokens(own.settlements, strange)
    return own


def own_batch(
    queues: QueueLocator, request: pb.ExecuteBatchRequest, caller: Caller
) -> pb.ExecuteBatchRequest:
    """Return a batch whose settlements are about leases of the caller only."""
    if not caller.is_limited:
        return request
    settlements = [
        settlement
        for operation in request.operations
        for settlement in operation.settle.settlements
    ]
    strange = foreign_leases(queues, settlements, caller)
    if not strange:
        return request
    own = pb.ExecuteBatchRequest()
    own.CopyFrom(request)
    for operation in own.operations:
        if operation.HasField("settle"):
            _negate_tokens(operation.settle.settlements, strange)
    return own


def own_sessions(
    queue: Queue, request: session_service_pb2.KeepSessionsRequest, caller: Caller
) -> session_service_pb2.KeepSessionsRequest:
    """Return a request that names a session of nobody in place of each that is not the caller's."""
    if not caller.is_limited:
        return request
    own = session_service_pb2.KeepSessionsRequest(request_id=request.request_id)
    own.session_ids.extend(
        one if owns_session(queue, one, caller) else NO_SESSION for one in request.session_ids
    )
    return own


def own_session(
    queue: Queue, request: session_service_pb2.CloseSessionRequest, caller: Caller
) -> session_service_pb2.CloseSessionRequest:
    """Return a request that names a session of nobody if the session is not the caller's."""
    if not caller.is_limited or owns_session(queue, request.session_id, caller):
        return request
    own = session_service_pb2.CloseSessionRequest()
    own.CopyFrom(request)
    own.session_id = NO_SESSION
    return own


def _negate_tokens(settlements: Sequence[pb.Settlement], strange: frozenset[int]) -> None:
    for settlement in settlements:
        if not strange.isdisjoint(settlement.tokens):
            settlement.tokens[:] = [
                -abs(token) if token in strange else token for token in settlement.tokens
            ]
