"""Define refusals: the reasons why a command, or one of its items, had no effect.

A stored refusal has the reason, the message and the metadata, but not the violations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Final, Protocol

from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Items, Number, Size, Texts
from taskraft_service.queue.values import value


class Reason(IntEnum):
    """Reason of a refusal; numbers and names are those of taskraft.v1.Error.Reason."""

    TUBE_NOT_FOUND = 1
    TASK_NOT_FOUND = 2
    SESSION_NOT_FOUND = 3
    GROUP_NOT_FOUND = 4
    SCHEDULE_NOT_FOUND = 5
    DEPENDENCY_NOT_FOUND = 7
    BULK_SWEEP_NOT_FOUND = 9
    TUBE_EXISTS = 10
    KEY_TAKEN = 11
    REQUEST_ID_REUSED = 12
    GROUP_EXISTS = 13
    SCHEDULE_EXISTS = 14
    SCHEDULE_CHANGED = 16
    LEASE_STALE = 20
    WRONG_STATE = 21
    TUBE_BUSY = 22
    KIND_UNSUITABLE = 23
    DRIVER_MISSING = 24
    TUBE_QUARANTINED = 26
    DRIVER_FAILED = 27
    TUBE_FULL = 30
    RATE_LIMITED = 31
    LIMIT_REACHED = 32
    PAYLOAD_TOO_LARGE = 40
    INVALID_FIELD = 41
    TOO_MANY_STEPS = 42
    TUBE_PAUSED = 50
    CURSOR_TRIMMED = 60
    FEED_MISMATCH = 61
    NOT_IMPLEMENTED = 70
    NOT_ALLOWED = 81


@value
class Refusal:
    """Result of a command, or of one item, that had no effect.

    ``violations`` are pairs of a field and the description of its error.
    """

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[tuple[str, str], ...] = ()


@value
class ItemRefusal:
    """Refusal of one item of a list; items are counted from 0."""

    item: int
    refusal: Refusal


def no_task(task_id: int) -> Refusal:
    """Return the refusal of a task id that does not exist."""
    return Refusal(
        Reason.TASK_NOT_FOUND, "the task does not exist, or it has ended", {"task_id": str(task_id)}
    )


def no_task_of_key(key: tuple[str, ...]) -> Refusal:
    """Return the refusal of a unique key that no task has."""
    return Refusal(Reason.TASK_NOT_FOUND, "no task has this key", {"key": "/".join(key)})


def key_taken(task_id: int) -> Refusal:
    """Return the refusal of a unique key that an unfinished task has."""
    return Refusal(
        Reason.KEY_TAKEN,
        f"task {task_id} has this unique key; wait for its end or set on_conflict",
        {"task_id": str(task_id)},
    )


def invalid(field: str, text: str, metadata: Mapping[str, str]) -> Refusal:
    """Return the refusal of a field; ``text`` describes the error."""
    return Refusal(
        Reason.INVALID_FIELD, f"{field}: {text}", {"field": field, **metadata}, ((field, text),)
    )


def together(refusals: Sequence[Refusal]) -> Refusal | None:
    """Return one refusal for all invalid fields, or None if there are none."""
    if len(refusals) < 2:
        return refusals[0] if refusals else None
    return replace(
        refusals[0],
        message="; ".join(refusal.message for refusal in refusals),
        violations=tuple(pair for refusal in refusals for pair in refusal.violations),
    )


def first_of(refusals: Sequence[Refusal]) -> Refusal:
    """Return the first refusal, with the violations of all refusals."""
    violations = tuple(pair for refusal in refusals for pair in refusal.violations)
    return replace(refusals[0], violations=violations)


def at_item(item: int, refusal: Refusal, path: str = "") -> Refusal:
    """Add the number of an item to its refusal, and ``path`` to the names of the fields."""
    metadata = {**refusal.metadata, "item": str(item)}
    return within(replace(refusal, metadata=metadata), path)


def within(refusal: Refusal, path: str) -> Refusal:
    """Add ``path`` to the names of the fields in a refusal, for the refusal of the request."""
    metadata = dict(refusal.metadata)
    if path and "field" in metadata:
        metadata["field"] = path + metadata["field"]
    violations = tuple((path + field, text) for field, text in refusal.violations)
    return replace(refusal, metadata=metadata, violations=violations)


@value
class CountResult:
    """Number of affected tasks, and the refused items.

    ``continue_after_id``: last id that a filter has scanned; 0: all tasks were scanned.
    """

    count: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0


class Refused(Protocol):
    """A group or schedule whose last put may have been refused."""

    refusal: Refusal | None


def reason_of(refused: Refused) -> int:
    """Return the reason of the refusal; 0: there is no refusal."""
    return 0 if refused.refusal is None else refused.refusal.reason


def message_of(refused: Refused) -> str:
    """Return the message of the refusal, or an empty text."""
    return "" if refused.refusal is None else refused.refusal.message


def metadata_of(refused: Refused) -> Mapping[str, str]:
    """Return the metadata of the refusal, or an empty mapping."""
    return {} if refused.refusal is None else refused.refusal.metadata


def flattened(metadata: Mapping[str, str]) -> list[str]:
    """Return each key and its text, one after the other."""
    return [text for pair in metadata.items() for text in pair]


def unflattened(texts: Sequence[str]) -> dict[str, str]:
    """Return the metadata of a flat list of keys and texts."""
    return dict(zip(texts[::2], texts[1::2], strict=True))


def kept_refusal(reason: int, message: str, metadata: Mapping[str, str]) -> Refusal | None:
    """Return the refusal that was kept, or None for the reason 0."""
    return Refusal(Reason(reason), message, metadata) if reason else None


def _texts_of(item: ItemRefusal) -> list[str]:
    return [item.refusal.message, *flattened(item.refusal.metadata)]


def _item_refusal(item: int, reason: Reason, texts: Sequence[str]) -> ItemRefusal:
    message, *metadata = texts
    return ItemRefusal(item, Refusal(reason, message, unflattened(metadata)))


_ITEM: Final = FieldTable(
    _item_refusal,
    Number("item", "I"),
    Number("reason", "H", Reason, of="refusal.reason"),
    Size("I", "texts"),
    Texts("texts", of=_texts_of),
)
"""The texts are the message, followed by the keys and values of the metadata."""

REFUSED_ITEMS: Final = Items("refused", _ITEM)
"""The refused items of an answer, from the attribute ``refused``."""
