"""Encode and decode the record of a tube and its options; its tasks have keys of their own."""

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
from taskraft_service.queue.entities.ready_tasks import ReadyAgeHistogram
from taskraft_service.queue.entities.task_state import BURIED, READY
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
    TubeView,
)
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.state.tube_registry import ready_order
from taskraft_service.queue.store.keys import BURIED_ORDER, order_scan, timer_key
from taskraft_service.queue.store.ordered_index import OrderedIndex
from taskraft_service.queue.store.store import Store

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
_options_table: Final = FieldTable(_FIELDS, "I")
"""The fields, and the number of weights."""


def write_options(options: TubeOptions) -> bytes:
    """Return the options as bytes, the same on all replicas."""
    texts = [options.dead_letter_tube.encode()]
    for subqueue, weight in options.subqueue_weights:
        texts += (subqueue.encode(), weight.to_bytes(4, "big"))
    head = _options_table.write(options, len(options.subqueue_weights))
    return head + write_retry(options.retry) + write_texts(texts)


def read_options(record: bytes, at: int) -> tuple[TubeOptions, int]:
    """Return the options that begin at ``at``, and the position after them."""
    fields, (weight_count,) = _options_table.read(record, at)
    at += _options_table.size
    retry = read_retry(record, at)
    texts, end = read_texts(record, at + RETRY_BYTES, 1 + 2 * weight_count)
    weights = tuple(
        (subqueue.decode(), int.from_bytes(weight, "big"))
        for subqueue, weight in zip(texts[1::2], texts[2::2], strict=True)
    )
    target = texts[0].decode()
    options = TubeOptions(**fields, retry=retry, dead_letter_tube=target, subqueue_weights=weights)
    return options, end


_table: Final = FieldTable(
    (
        ("number", "I", int),
        ("kind", "B", TubeKind),
        ("next_id", "Q", int),
        ("lane_min", "q", int),
        ("lane_max", "q", int),
        ("ready.offers", "Q", int),
        ("ready.types.has_any", "?", bool),
        ("ready.time", "Q", int),
        ("share", "Q", int),
        ("created_ms", "q", int),
    ),
    "qqIHHH",
)
"""The fields of fixed size; then level and instant of the token bucket, the version of the driver,
and the lengths of the name, the profile and the driver's name."""


def write_tube(tube: QueueTube) -> bytes:
    """Return the record of a tube."""
    name, profile, driver = tube.name.encode(), tube.profile.encode(), tube.driver.encode()
    bucket = tube.bucket
    level, at_ms = (0, 0) if bucket is None else (bucket.level, bucket.at_ms)
    head = _table.write(
        tube, level, at_ms, tube.driver_version, len(name), len(profile), len(driver)
    )
    options = write_options(tube.options)
    counters = tube.counters.record()
    ages = tube.ages.record()
    return b"".join((head, name, profile, driver, options, counters, ages, tube.memory))


def read_tube(record: bytes, store: Store, limits: Limits) -> QueueTube:
    """Return the tube of a record; its content stays in the store."""
    fields, (level, at_ms, driver_version, *lengths) = _table.read(record)
    name_bytes, profile_bytes, driver_bytes = lengths
    name_end = _table.size + name_bytes
    profile_end = name_end + profile_bytes
    driver_end = profile_end + driver_bytes
    options, options_end = read_options(record, driver_end)
    view = TubeView(
        record[_table.size : name_end].decode(),
        fields["kind"],
        options,
        fields["created_ms"],
        record[name_end:profile_end].decode(),
        record[profile_end:driver_end].decode(),
        driver_version,
    )
    tube = QueueTube(fields["number"], view, store, limits)
    for name in ("next_id", "lane_min", "lane_max", "share"):
        setattr(tube, name, fields[name])
    if tube.bucket is not None:
        tube.bucket.level, tube.bucket.at_ms = level, at_ms
    tube.subqueue_rates.restore()
    tube.timer = tube.due()
    tube.written = timer_key(tube.timer) if tube.timer is not None else b""
    tube.counters = TubeCounters.read(record, options_end)
    tube.ages, ages_end = ReadyAgeHistogram.read(record, options_end + TubeCounters.RECORD_BYTES)
    tube.memory = record[ages_end:]
    _open_orders(tube, store, limits)
    tube.ready.restore_state(fields["ready.offers"], fields["ready.time"])
    tube.ready.types.has_any = fields["ready.types.has_any"]
    return tube


def _open_orders(tube: QueueTube, store: Store, limits: Limits) -> None:
    """Let a tube find its waiting tasks in the store, where it has any."""
    states = tube.counters.states
    tube.ready = ready_order(tube, store, limits, stored=states[READY] > 0)
    tube.buried = OrderedIndex(
        order_scan(store, BURIED_ORDER, tube.number),
        limits.head_entries_max,
        stored=states[BURIED] > 0,
    )
