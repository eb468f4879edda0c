"""Write the options of a tube as bytes."""

from __future__ import annotations

from struct import Struct

from service.queue.commands import Durability, OnAck, TtlPolicy, TtlScope, TubeOptions
from service.queue.tasks.extras_codec import (
    RETRY_BYTES,
    read_retry,
    read_texts,
    write_retry,
    write_texts,
)

_record = Struct(">?qqqq??qqBBBqQQQIIIIIIBI")


def write_options(options: TubeOptions) -> bytes:
    """Return the options as they are written; the same bytes on all replicas."""
    head = _record.pack(
        options.higher_first,
        options.priority,
        options.delay_ms,
        options.ttl_ms,
        options.ttr_ms,
        options.put_paused,
        options.take_paused,
        options.priority_min,
        options.priority_max,
        options.ttl_scope,
        options.ttl_policy,
        options.on_ack,
        options.retain_ms,
        options.capacity_tasks,
        options.capacity_bytes,
        options.buried_max,
        options.concurrency,
        options.subqueue_concurrency,
        options.rate_per_second,
        options.rate_burst,
        options.subqueue_rate_per_second,
        options.subqueue_rate_burst,
        options.durability,
        len(options.subqueue_weights),
    )
    texts = [options.dead_letter_tube.encode()]
    for subqueue, weight in options.subqueue_weights:
        texts += (subqueue.encode(), weight.to_bytes(4, "big"))
    return head + write_retry(options.retry) + write_texts(texts)


def read_options(record: bytes, at: int) -> tuple[TubeOptions, int]:
    """Return the options that stand at a place of a record, and where they end."""
    (
        higher_first,
        priority,
        delay_ms,
        ttl_ms,
        ttr_ms,
        put_paused,
        take_paused,
        priority_min,
        priority_max,
        ttl_scope,
        ttl_policy,
        on_ack,
        retain_ms,
        capacity_tasks,
        capacity_bytes,
        buried_max,
        concurrency,
        subqueue_concurrency,
        rate_per_second,
        rate_burst,
        subqueue_rate_per_second,
        subqueue_rate_burst,
        durability,
        weight_count,
    ) = _record.unpack_from(record, at)
    at += _record.size
    retry = read_retry(record, at)
    texts, end = read_texts(record, at + RETRY_BYTES, 1 + 2 * weight_count)
    weights = tuple(
        (subqueue.decode(), int.from_bytes(weight, "big"))
        for subqueue, weight in zip(texts[1::2], texts[2::2], strict=True)
    )
    options = TubeOptions(
        higher_first=higher_first,
        priority=priority,
        delay_ms=delay_ms,
        ttl_ms=ttl_ms,
        ttr_ms=ttr_ms,
        put_paused=put_paused,
        take_paused=take_paused,
        priority_min=priority_min,
        priority_max=priority_max,
        ttl_scope=TtlScope(ttl_scope),
        ttl_policy=TtlPolicy(ttl_policy),
        on_ack=OnAck(on_ack),
        retain_ms=retain_ms,
        capacity_tasks=capacity_tasks,
        capacity_bytes=capacity_bytes,
        buried_max=buried_max,
        retry=retry,
        dead_letter_tube=texts[0].decode(),
        concurrency=concurrency,
        subqueue_concurrency=subqueue_concurrency,
        rate_per_second=rate_per_second,
        rate_burst=rate_burst,
        subqueue_rate_per_second=subqueue_rate_per_second,
        subqueue_rate_burst=subqueue_rate_burst,
        subqueue_weights=weights,
        durability=Durability(durability),
    )
    return options, end
