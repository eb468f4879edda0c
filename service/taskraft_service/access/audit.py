"""Write the audit log: failed authentications, refused requests, and management requests.

The records go to the logger ``AUDIT_LOGGER``, which may write to a separate file or descriptor. A
record identifies the request by ids and never contains payloads. Session ids are secret, so a
record contains only their first characters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import structlog
from google.protobuf.message import Message

from taskraft_service.queue.entities.session import LABEL_CHARACTERS
from taskraft_service.record_budget import RecordBudget

AUDIT_LOGGER: Final = "taskraft.audit"
IDS_MAX: Final = 100
"""Maximum number of ids in one record; ``ids_count`` is the number of ids in the request."""
BURST_FAILURES: Final = 50
FAILURES_PER_SECOND: Final = 5.0
"""Maximum rate of records of failed authentications, because anybody can cause them."""

log: Final = structlog.get_logger(AUDIT_LOGGER)
failures: Final = RecordBudget(BURST_FAILURES, FAILURES_PER_SECOND, time.monotonic)


def log_unauthenticated(peer: str, call: str, reason: str) -> None:
    """Record a call without valid credentials, unless the rate limit is reached."""
    suppressed = failures.take()
    if suppressed is not None:
        more = {"suppressed": suppressed} if suppressed else {}
        log.warning("unauthenticated", peer=peer, call=call, reason=reason, **more)


def log_denied(principal: str, peer: str, request: Message, verb: str, name: str) -> None:
    """Record a request that its caller may not make."""
    log.warning(
        "denied",
        principal=principal,
        peer=peer,
        call=_method(request),
        verb=verb,
        name=name,
        **dict(_ids(request)),
    )


def log_managed(
    principal: str, peer: str, request: Message, names: Sequence[str], index: int
) -> None:
    """Record an executed request with the permission to manage.

    Args:
        principal: the name of the caller.
        peer: the address of the caller.
        request: the request.
        names: the names, such as tubes, for which the caller needed the permission.
        index: index of the log entry with the change; 0 if nothing was changed.
    """
    log.info(
        "managed",
        principal=principal,
        peer=peer,
        call=_method(request),
        names=names,
        index=index,
        **dict(_ids(request)),
    )


def _method(request: Message) -> str:
    return request.DESCRIPTOR.name.removesuffix("Request")


def _ids(request: Message) -> Iterator[tuple[str, Any]]:
    """Yield the fields that identify the objects of a request."""
    for field, value in request.ListFields():
        match field.name:
            case "request_id" | "client_id" | "task_id" | "move_to":
                yield field.name, value
            case "session_id":
                yield field.name, value[:LABEL_CHARACTERS]
            case "selector":
                if value.ids:
                    yield "ids", list(value.ids[:IDS_MAX])
                    yield "ids_count", len(value.ids)
                if value.keys:
                    yield "keys", [list(key.parts) for key in value.keys[:IDS_MAX]]
                    yield "keys_count", len(value.keys)
                if value.filter:
                    yield "filter", value.filter
            case _:
                pass
