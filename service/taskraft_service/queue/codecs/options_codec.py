"""Write the options of a tube as bytes."""

from __future__ import annotations

from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from taskraft_service.queue.codecs.extras_codec import (
    RETRY_BYTES,
    read_retry,
    read_texts,
    write_retry,
    write_texts,
)
from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS: Final[tuple[tuple[str, str, Callable[[Any], object]], ...]] = (
    ("higher_first", "?", bool),
    ("priority", "q", int),
    ("delay_ms", "q", int),
    ("ttl_ms", "q", int),
    ("ttr_ms", "q", int),
    ("put_paused", "?", bool),
    ("take_paused", "?", bool),
    ("priority_min", "q", int),
    ("priority_max", "q", int),
    ("ttl_scope", "B", TtlScope),
    ("ttl_policy", "B", TtlPolicy),
    ("on_ack", "B", OnAck),
    ("retain_ms", "q", int),
    ("capacity_tasks", "Q", int),
    ("capacity_bytes", "Q", int),
    ("buried_max", "Q", int),
    ("concurrency", "I", int),
    ("subqueue_concurrency", "I", int),
    ("rate_per_second", "I", int),
    ("rate_burst", "I", int),
    ("subqueue_rate_per_second", "I", int),
    ("subqueue_rate_burst", "I", int),
    ("durability", "B", Durability),
)
"""The options of fixed size in their order: name, how it is packed, and what it is read as."""

_values_of: Final = attrgetter(*(name for name, _, _ in _FIELDS))
_record: Final = Struct(">" + "".join(code for _, code, _ in _FIELDS) + "I")
"""The options of fixed size, and the number of weights."""


def write_options(options: TubeOptions) -> bytes:
    """Return the options as they are written; the same bytes on all replicas."""
    head = _record.pack(*_values_of(options), len(options.subqueue_weights))
    texts = [options.dead_letter_tube.encode()]
    for subqueue, weight in options.subqueue_weights:
        texts += (subqueue.encode(), weight.to_bytes(4, "big"))
    return head + write_retry(options.retry) + write_texts(texts)


def read_options(record: bytes, at: int) -> tuple[TubeOptions, int]:
    """Return the options that stand at a place of a record, and where they end."""
    *numbers, weight_count = _record.unpack_from(record, at)
    values: dict[str, Any] = {
        name: read(number) for (name, _, read), number in zip(_FIELDS, numbers, strict=True)
    }
    at += _record.size
    retry = read_retry(record, at)
    texts, end = read_texts(record, at + RETRY_BYTES, 1 + 2 * weight_count)
    weights = tuple(
        (subqueue.decode(), int.from_bytes(weight, "big"))
        for subqueue, weight in zip(texts[1::2], texts[2::2], strict=True)
    )
    target = texts[0].decode()
    options = TubeOptions(**values, retry=retry, dead_letter_tube=target, subqueue_weights=weights)
    return options, end
