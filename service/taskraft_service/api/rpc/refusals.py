"""Turn the errors of the service's own parts into refusals that a caller can act on."""

from __future__ import annotations

from taskraft.v1 import error_pb2
from taskraft_replication.errors import NotRaftLeader, ReadUnconfirmed, Stopped
from taskraft_service.access.denial import PermissionDenied, Unauthenticated
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.proposal import LeaderOverloaded, NotProposed, OutcomeUnknown
from taskraft_service.wire import WireMalformed


def refused_for(error: Exception) -> CallRefused | None:
    """Return how the service answers an error of its own parts; None: it is a defect."""
    match error:
        case CallRefused():
            return error
        case Unauthenticated():
            return CallRefused(error_pb2.Error.NO_CREDENTIALS, str(error))
        case PermissionDenied():
            missing = {"principal": error.principal, "verb": error.verb, "tube": error.name}
            return CallRefused(error_pb2.Error.NOT_ALLOWED, str(error), missing)
        case LeaderOverloaded():
            return CallRefused(error_pb2.Error.OVERLOADED, str(error))
        case OutcomeUnknown():
            text = f"the outcome is not known: {error}"
            return CallRefused(error_pb2.Error.COMMIT_UNKNOWN, text)
        case ReadUnconfirmed():
            return CallRefused(error_pb2.Error.NO_LEADER, "no majority confirms the read")
        case NotProposed() | NotRaftLeader():
            return CallRefused(error_pb2.Error.NOT_LEADER, "this node does not lead")
        case Stopped():
            return CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
        case WireMalformed():
            return CallRefused(error_pb2.Error.INVALID_FIELD, "the request is not a message")
        case _:
            return None
