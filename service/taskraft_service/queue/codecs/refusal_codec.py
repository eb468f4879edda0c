"""State the layouts of refusals that are kept: of items of an answer, of a group, of a schedule.

Each layout has the reason, the message and the metadata, but not the violations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import Items, Number, Size, Texts
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal


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
"""The texts are the message, then keys and texts of the metadata."""

REFUSED_ITEMS: Final = Items("refused", _ITEM)
"""The refused items of an answer, which it has as ``refused``."""
