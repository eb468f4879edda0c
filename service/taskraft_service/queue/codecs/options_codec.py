"""Encode and decode the options of a tube."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.codecs.extras_codec import (
    RETRY_BYTES,
    read_retry,
    read_texts,
    write_retry,
    write_texts,
)
from taskraft_service.queue.codecs.field_table import Field, FieldTable
from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeOptions,
)

_FIELDS: Final[tuple[Field, ...]] = (
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
"""The options of fixed size, in the order on disk."""
_table: Final = FieldTable(_FIELDS, "I")
"""The fields, and the number of weights."""


def write_options(options: TubeOptions) -> bytes:
    """Return the options as bytes, the same on all replicas."""
    texts = [options.dead_letter_tube.encode()]
    for subqueue, weight in options.subqueue_weights:
        texts += (subqueue.encode(), weight.to_bytes(4, "big"))
    head = _table.write(options, len(options.subqueue_weights))
    return head + write_retry(options.retry) + write_texts(texts)


def read_options(record: bytes, at: int) -> tuple[TubeOptions, int]:
    """Return the options that begin at ``at``, and the position after them."""
    fields, (weight_count,) = _table.read(record, at)
    at += _table.size
    retry = read_retry(record, at)
    texts, end = read_texts(record, at + RETRY_BYTES, 1 + 2 * weight_count)
    weights = tuple(
        (subqueue.decode(), int.from_bytes(weight, "big"))
        for subqueue, weight in zip(texts[1::2], texts[2::2], strict=True)
    )
    target = texts[0].decode()
    options = TubeOptions(**fields, retry=retry, dead_letter_tube=target, subqueue_weights=weights)
    return options, end
