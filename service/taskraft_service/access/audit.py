"""Write the audit log: refused callers, refused requests, and requests that manage.

The records go to the logger ``AUDIT_LOGGER``, which may have a file or a descriptor of its own. A
record names the request by its ids, never by payloads. Ids of sessions are secret, so only their
beginning is recorded.
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
"""Maximum number of ids in one record; ``ids_count`` tells how many the request has."""
BURST_FAILURES: Final = 50
FAILURES_PER_SECOND: Final = 5.0
"""Limits of the records of failed authentications, which anybody can cause."""

log: Final = structlog.get_logger(AUDIT_LOGGER)
failures: Final = RecordBudget(BURST_FAILURES, FAILURES_PER_SECOND, time.monotonic)


def log_unauthenticated(peer: str, call: str, reason: str) -> None:
    """Record a call without valid credentials; ``suppressed`` counts those not recorded."""
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
        names: what the caller needed the permission for.
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
    """Yield the fields that identify what a request is about."""
    for field, value in request.ListFields():
        match field.name:
            case "request_id" | "task_id" | "move_to":
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
