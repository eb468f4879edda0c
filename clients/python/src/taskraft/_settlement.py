"""Build settlements, and read the responses to a list of settlements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, Unpack

from taskraft._arguments import check_known, choice, flag, text, wrong_type, wrong_value
from taskraft._durations import Duration, milliseconds
from taskraft._error_translation import refused_items
from taskraft._handler_error import HandlerError
from taskraft._message_fields import choices_of
from taskraft._payload import Payload, encode
from taskraft._retry import Position, position_of
from taskraft._task_selection import TaskChanges, update_of
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from taskraft._request_batcher import ItemOutcome
    from taskraft.v1 import error_pb2

Settlement: TypeAlias = task_service_pb2.Settlement
TouchedLease: TypeAlias = task_service_pb2.TouchedLease
GivenUpLease: TypeAlias = task_service_pb2.GivenUpLease
SettledLease: TypeAlias = "TouchedLease | GivenUpLease | None"
"""A lease after a touch, or after a release or a rejection that ended the attempts of the task;
None after all other settlements."""
SettleItem: TypeAlias = tuple[int, Settlement]
"""A lease token with its settlement. Items with the same settlement object are sent as one
Settlement."""

FAILURE_TEXT_BYTES_MAX: Final = 4 * 1024
"""Limit of the API for a failure text; longer texts are cut at the end."""
FAILURE_TYPE_BYTES_MAX: Final = 255
RESULT_BYTES_MAX: Final = 1024 * 1024
"""Limit of the API for a result; a larger result can never be stored."""

Keep: TypeAlias = Literal["remove", "done", "zombie"]
_KEEPS: Final = choices_of(Settlement.Ack.Keep)
_TTL_POLICIES: Final = choices_of(Settlement.Release.TtlPolicy)
Reason: TypeAlias = "str | BaseException"
"""Reason of a failure: a string, or the exception itself."""

PLAIN_ACK: Final = Settlement(ack=Settlement.Ack())
"""Shared by all acknowledgements without a result, so that they are sent as one Settlement."""


def failure_of(reason: Reason | task_pb2.Failure, *, fatal: bool = False) -> task_pb2.Failure:
    """Return the failure record for a reason; a failure of the API stays unchanged."""
    if isinstance(reason, task_pb2.Failure):
        return reason
    if not isinstance(reason, str | BaseException):
        raise wrong_type("reason", "a string or an exception", reason)
    if isinstance(reason, HandlerError):
        name, message = reason.kind, reason.text
    else:
        name = "" if isinstance(reason, str) else type(reason).__name__
        message = str(reason)
    return task_pb2.Failure(
        type=_cut(name, FAILURE_TYPE_BYTES_MAX),
        message=_cut(message, FAILURE_TEXT_BYTES_MAX),
        fatal=fatal,
    )


def _cut(text: str, bytes_max: int) -> str:
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


class ReleaseOptions(TypedDict, total=False):
    """Options of a release, besides the delay."""

    reason: Reason | None
    """Reason of the failure, for people and for the retry policy."""
    uncounted: bool
    """True: the attempt does not count, because the task was not processed."""
    position: Position
    """Before or behind all READY tasks, instead of the task's old position."""
    ttl_policy: Literal["add_delay", "keep_deadline", "reset"]
    """Effect of the delay on the TTL; default: the setting of the tube."""
    ttl: Duration
    """New TTL, with the policy "reset"."""
    move_to: str
    """Name of another tube, to which the task is moved."""
    changes: TaskChanges
    """Further changes of the task; they must not contain a delay."""


def ack(
    result: Payload = None,
    *,
    keep: Keep | None = None,
    retain: Duration | None = None,
    payload: Payload = None,
) -> Settlement:
    """Return a settlement that acknowledges a task."""
    if result is None and keep is None and retain is None and payload is None:
        return PLAIN_ACK
    message = Settlement.Ack()
    if result is not None:
        message.result, message.result_content_type = encode(result)
    if keep is not None:
        message.keep = Settlement.Ack.Keep.ValueType(choice("keep", keep, _KEEPS))
    if retain is not None:
        message.retain_ms = milliseconds(retain, "retain")
    if payload is not None:
        message.payload = encode(payload)[0]
    return Settlement(ack=message)


def release(delay: Duration | None = None, **options: Unpack[ReleaseOptions]) -> Settlement:
    """Return a settlement that releases a task.

    Raises:
        TypeError: an option is unknown.
    """
    check_known(options, ReleaseOptions, "release has no option")
    message = Settlement.Release(
        uncounted=flag("uncounted", options.get("uncounted", False)),
        move_to=text("move_to", options.get("move_to", "")),
    )
    if delay is not None:
        message.delay_ms = milliseconds(delay, "delay")
    reason = options.get("reason")
    if reason is not None:
        message.failure.CopyFrom(failure_of(reason))
    if "position" in options:
        message.position = position_of(options["position"])
    if "ttl_policy" in options:
        policy = choice("ttl_policy", options["ttl_policy"], _TTL_POLICIES)
        message.ttl_policy = Settlement.Release.TtlPolicy.ValueType(policy)
    if "ttl" in options:
        message.ttl_ms = milliseconds(options["ttl"], "ttl")
    if "changes" in options:
        message.update.CopyFrom(update_of(options["changes"]))
    return Settlement(release=message)


def bury(reason: Reason = "", *, changes: TaskChanges | None = None) -> Settlement:
    """Return a settlement that buries a task."""
    message = Settlement.Bury(failure=failure_of(reason))
    if changes is not None:
        message.update.CopyFrom(update_of(changes))
    return Settlement(bury=message)


def reject(reason: Reason = "") -> Settlement:
    """Return a settlement that rejects a task: to the dead-letter tube if any, else bury."""
    return Settlement(reject=Settlement.Reject(failure=failure_of(reason, fatal=True)))


def touch(
    increment: Duration | None = None, *, progress: float | None = None, note: str = ""
) -> Settlement:
    """Return a settlement that extends a lease; without an increment, its TTR restarts."""
    message = Settlement.Touch()
    if increment is None:
        message.restart = True
    else:
        message.increment_ms = milliseconds(increment, "increment")
    if progress is not None or note:
        message.progress.CopyFrom(
            task_pb2.Progress(basis_points=_basis_points(progress), note=text("note", note))
        )
    return Settlement(touch=message)


def _basis_points(progress: object) -> int:
    """Return the progress in ten-thousandths."""
    expected = "a number from 0 to 1"
    if progress is None:
        return 0
    if not isinstance(progress, int | float) or isinstance(progress, bool):
        raise wrong_type("progress", expected, progress)
    if not 0 <= progress <= 1:
        raise wrong_value("progress", expected, progress)
    return round(progress * 10_000)


def settlements_of(items: Iterable[SettleItem]) -> list[Settlement]:
    """Return the items as messages; consecutive items with one action share a Settlement."""
    packed: list[Settlement] = []
    tokens: list[int] = []
    running: Settlement | None = None
    for token, action in items:
        if action is not running:
            if running is not None:
                packed[-1].tokens.extend(tokens)
            message = Settlement()
            message.CopyFrom(action)
            packed.append(message)
            tokens, running = [], action
        tokens.append(token)
    if running is not None:
        packed[-1].tokens.extend(tokens)
    return packed


def outcomes_of(
    items: Sequence[SettleItem],
    refused: Iterable[error_pb2.ItemError],
    touched: Iterable[TouchedLease],
    given_up: Iterable[GivenUpLease],
) -> list[ItemOutcome[SettledLease]]:
    """Return one outcome per item: an error, or the lease after the settlement."""
    outcomes: list[ItemOutcome[SettledLease]] = [None] * len(items)
    by_token: dict[int, SettledLease] = {lease.token: lease for lease in touched}
    by_token.update((lease.token, lease) for lease in given_up)
    if by_token:
        for position, (token, _) in enumerate(items):
            outcomes[position] = by_token.get(token)
    for position, error in refused_items(refused).items():
        if 0 <= position < len(outcomes):
            outcomes[position] = error
    return outcomes
