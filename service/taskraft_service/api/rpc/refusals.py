"""Turn the errors of the service's own parts into refusals that a caller can act on."""

from __future__ import annotations

from taskraft.v1 import error_pb2
from taskraft_replication.errors import NotLeader, ReadUnconfirmed, Stopped
from taskraft_service.access.denial import NotAllowed, NotKnown
from taskraft_service.api.rpc.status import Refused
from taskraft_service.leader.proposal import LeaderOverloaded, NotProposed, OutcomeUnknown
from taskraft_service.wire import WireMalformed


def refusal_of(error: Exception) -> Refused | None:
    """Return how the service answers an error of its own parts; None: it is a defect."""
    match error:
        case Refused():
            return error
        case NotKnown():
            return Refused(error_pb2.Error.NO_CREDENTIALS, str(error))
        case NotAllowed():
            missing = {"principal": error.principal, "verb": error.verb, "tube": error.name}
            return Refused(error_pb2.Error.NOT_ALLOWED, str(error), missing)
        case LeaderOverloaded():
            return Refused(error_pb2.Error.OVERLOADED, str(error))
        case OutcomeUnknown():
            text = f"the outcome is not known: {error}"
            return Refused(error_pb2.Error.COMMIT_UNKNOWN, text)
        case ReadUnconfirmed():
            return Refused(error_pb2.Error.NO_LEADER, "no majority confirms the read")
        case NotProposed() | NotLeader():
            return Refused(error_pb2.Error.NOT_LEADER, "this node does not lead")
        case Stopped():
            return Refused(error_pb2.Error.DRAINING, "this node is stopping")
        case WireMalformed():
            return Refused(error_pb2.Error.INVALID_FIELD, "the request is not a message")
        case _:
            return None
