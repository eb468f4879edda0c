"""Encode the result of a command, so that a repeated request id gets the first answer again.

Results are kept for minutes at the full request rate, so the records are compact. Leases, tubes,
sessions, groups and schedules are kept by id or name and are shown as they are at the time of the
repetition. Each record begins with a byte that identifies its codec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import Final, Generic, TypeVar

from taskraft_service.queue.codecs.extras_codec import read_texts, write_texts
from taskraft_service.queue.entities.refusal import CountResult, ItemRefusal, Reason, Refusal
from taskraft_service.queue.state.queue_state import QueueState

R = TypeVar("R")
KIND_BYTES: Final = 1
COUNT: Final = Struct(">I")
_refusal: Final = Struct(">IHI")
"""Item, reason, number of texts."""


@dataclass(frozen=True, slots=True)
class AnswerCodec(Generic[R]):
    """How the result of a command is kept.

    Args:
        kinds: first bytes of the records that ``write`` returns; unique among all codecs.
        write: encodes a result.
        repeat: decodes a record and returns the answer to a repetition.
    """

    kinds: tuple[int, ...]
    write: Callable[[R], bytes]
    repeat: Callable[[QueueState, bytes], R | Refusal]


def table_answer(
    kind: int, result: Callable[..., R], fields: Sequence[tuple[str, str]]
) -> AnswerCodec[R]:
    """Return the codec of a result that consists of numbers and the refused items.

    ``fields``: name and struct code of each number, in order.
    """
    names = [name for name, _ in fields]
    record = Struct(">B" + "".join(code for _, code in fields))
    values_of = attrgetter(*names)

    def write(answer: R) -> bytes:
        return record.pack(kind, *values_of(answer)) + write_refusals(attrgetter("refused")(answer))

    def repeat(_state: QueueState, kept: bytes) -> R:
        _, *numbers = record.unpack_from(kept)
        values = dict(zip(names, numbers, strict=True))
        return result(**values, refused=read_refusals(kept, record.size))

    return AnswerCodec((kind,), write, repeat)


def named_answer(
    kind: int, name_of: Callable[[R], str], show: Callable[[QueueState, str], R | Refusal]
) -> AnswerCodec[R]:
    """Return the codec of a result that is kept by its name and shown as it is when repeated."""
    prefix = bytes((kind,))
    return AnswerCodec(
        (kind,),
        lambda answer: prefix + name_of(answer).encode(),
        lambda state, kept: show(state, kept[KIND_BYTES:].decode()),
    )


def write_numbers(numbers: Sequence[int]) -> bytes:
    """Return unsigned 64-bit numbers, one after the other."""
    return Struct(f">{len(numbers)}Q").pack(*numbers)


def read_numbers(kept: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Return ``count`` numbers that begin at ``at``, and the position after them."""
    numbers = Struct(f">{count}Q")
    return list(numbers.unpack_from(kept, at)), at + numbers.size


def write_refusals(refused: Sequence[ItemRefusal]) -> bytes:
    """Return the refused items with their number in front."""
    parts = [COUNT.pack(len(refused))]
    for item in refused:
        refusal = item.refusal
        texts = [refusal.message, *(text for pair in refusal.metadata.items() for text in pair)]
        parts.append(_refusal.pack(item.item, refusal.reason, len(texts)))
        parts.append(write_texts([text.encode() for text in texts]))
    return b"".join(parts)


def read_refusals(kept: bytes, at: int) -> Sequence[ItemRefusal]:
    """Return the refused items that begin at ``at``."""
    (count,) = COUNT.unpack_from(kept, at)
    at += COUNT.size
    refused = []
    for _ in range(count):
        item, reason, text_count = _refusal.unpack_from(kept, at)
        texts, at = read_texts(kept, at + _refusal.size, text_count)
        message, *pairs = (text.decode() for text in texts)
        metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
        refused.append(ItemRefusal(item, Refusal(Reason(reason), message, metadata)))
    return refused


COUNT_ANSWER: Final = table_answer(5, CountResult, (("count", "Q"), ("continue_after_id", "Q")))
