"""Write the audit log: failed authentications, refused requests, and management requests.

The records go to the logger ``AUDIT_LOGGER``, which may write to a separate file or descriptor. A
record identifies the request by ids and never contains payloads. Session ids are secret, so a
record contains only their first characters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog
from google.protobuf import text_format
from google.protobuf.message import Message

from taskraft.v1 import task_pb2
from taskraft.v1.bulk_sweep_pb2 import StartBulkSweepRequest
from taskraft_service.queue.entities.managed_act import (
    DETAIL_CHARACTERS_MAX,
    NAMES_MAX,
    ManagedAct,
)
from taskraft_service.queue.entities.session import LABEL_CHARACTERS
from taskraft_service.record_budget import RecordBudget

if TYPE_CHECKING:
    from taskraft_service.access.caller import Caller

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


def log_denied(caller: Caller, request: Message, verb: str, name: str) -> None:
    """Record a request that its caller may not make."""
    log.warning(
        "denied",
        **_caller(caller),
        call=_method(request),
        verb=verb,
        name=name,
        **dict(_ids(request)),
    )


def log_managed(caller: Caller, request: Message, names: Sequence[str], index: int) -> None:
    """Record an executed request with the permission to manage.

    Args:
        caller: the caller.
        request: the request.
        names: the names, such as tubes, for which the caller needed the permission.
        index: index of the log entry with the change; 0 if nothing was changed.
    """
    log.info(
        "managed",
        **_caller(caller),
        call=_method(request),
        names=names,
        index=index,
        **dict(_ids(request)),
    )


def managed_act(caller: Caller, request: Message, names: Sequence[str]) -> ManagedAct:
    """Return a request with the permission to manage as an act for the replicated audit."""
    return ManagedAct(
        principal=caller.name,
        peer=caller.peer,
        call=_method(request),
        names=tuple(dict.fromkeys(names))[:NAMES_MAX],
        detail=" ".join((*_caller_detail(caller), *_detail(request)))[:DETAIL_CHARACTERS_MAX],
    )


def _caller_detail(caller: Caller) -> Iterator[str]:
    """Yield the person for whom the caller speaks, and the node that has forwarded the call."""
    if caller.person:
        yield f"person={caller.person!r}"
    if caller.via:
        yield f"via={caller.via}"


def _caller(caller: Caller) -> dict[str, str]:
    """Return the fields of a record that name the caller."""
    person = {"person": caller.person} if caller.person else {}
    via = {"via": caller.via} if caller.via else {}
    return {"principal": caller.name, **person, "peer": caller.peer, **via}


def _detail(request: Message) -> Iterator[str]:
    """Yield the fields that identify what a request changes, as texts; never payloads."""
    for field, value in request.ListFields():
        match field.name:
            case "selector":
                yield from _selection(value)
            case "options" | "settings":
                yield _one_line(value)
            case "tube" if isinstance(value, Message):
                yield _one_line(value)
            case "move_to" | "peer_address" | "address" | "count" | "profile":
                yield f"{field.name}={value}"
            case "action":
                yield f"action={StartBulkSweepRequest.Action.Name(value).lower()}"
            case "ids" | "filter":
                yield _choice(field.name, value)
            case "failure":
                yield f"reason={value.type or value.message!r}"
            case "operations":
                yield f"operations={len(value)}"
            case _:
                pass


def _selection(selector: task_pb2.TaskSelector) -> Iterator[str]:
    """Yield the ids, the number of keys, and the filter of a selector."""
    if selector.ids:
        yield _choice("ids", selector.ids)
    if selector.keys:
        yield f"keys={len(selector.keys)}"
    if selector.filter:
        yield _choice("filter", selector.filter)


def _choice(name: str, value: str | Sequence[int]) -> str:
    """Return the ids or the filter that choose tasks."""
    shown = repr(value) if isinstance(value, str) else ",".join(map(str, value[:IDS_MAX]))
    return f"{name}={shown}"


def _one_line(message: Message) -> str:
    return text_format.MessageToString(message, as_one_line=True).strip()


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
