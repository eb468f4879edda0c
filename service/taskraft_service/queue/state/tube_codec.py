"""Encode and decode the record of a tube with its options; tasks have separate records."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from taskraft_service.queue.entities.ready_tasks import ReadyAgeHistogram
from taskraft_service.queue.entities.task_codec import RETRY
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
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Blob, Constant, Items, Nested, Number, Size, Text
from taskraft_service.queue.store.keys import BURIED_ORDER, order_scan, timer_key
from taskraft_service.queue.store.ordered_index import OrderedIndex
from taskraft_service.queue.store.store import Store

_WEIGHT: Final = FieldTable(
    lambda subqueue, weight: (subqueue, weight),
    Text("subqueue", of=itemgetter(0)),
    Constant("I", 4),
    Number("weight", "I", of=itemgetter(1)),
)
"""The weight of a sub-queue, stored as a byte string of 4 bytes."""

OPTIONS: Final = FieldTable(
    TubeOptions,
    Number("higher_first", "?"),
    Number("priority", "q"),
    Number("delay_ms", "q"),
    Number("ttl_ms", "q"),
    Number("ttr_ms", "q"),
    Number("put_paused", "?"),
    Number("take_paused", "?"),
    Number("priority_min", "q"),
    Number("priority_max", "q"),
    Number("ttl_scope", "B", TtlScope),
    Number("ttl_policy", "B", TtlPolicy),
    Number("on_ack", "B", OnAck),
    Number("retain_ms", "q"),
    Number("capacity_tasks", "Q"),
    Number("capacity_bytes", "Q"),
    Number("buried_max", "Q"),
    Number("concurrency", "I"),
    Number("subqueue_concurrency", "I"),
    Number("rate_per_second", "I"),
    Number("rate_burst", "I"),
    Number("subqueue_rate_per_second", "I"),
    Number("subqueue_rate_burst", "I"),
    Number("durability", "B", Durability),
    Size("I", "subqueue_weights"),
    Nested("retry", RETRY),
    Text("dead_letter_tube"),
    Items("subqueue_weights", _WEIGHT),
)


class _Counts(NamedTuple):
    """Codec of counters; the class of the counters encodes them as arrays of numbers."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], tuple[Any, int]]


def _level_of(tube: QueueTube) -> int:
    return 0 if tube.bucket is None else tube.bucket.level


def _level_at_ms(tube: QueueTube) -> int:
    return 0 if tube.bucket is None else tube.bucket.at_ms


_TUBE: Final[FieldTable[dict[str, Any]]] = FieldTable(
    dict,
    Number("number", "I"),
    Number("kind", "B", TubeKind),
    Number("next_id", "Q"),
    Number("lane_min", "q"),
    Number("lane_max", "q"),
    Number("offers", "Q", of="ready.offers"),
    Number("has_types", "?", of="ready.types.has_any"),
    Number("virtual_time", "Q", of="ready.time"),
    Number("share", "Q"),
    Number("created_ms", "q"),
    Number("bucket.level", "q", of=_level_of),
    Number("bucket.at_ms", "q", of=_level_at_ms),
    Number("driver_version", "I"),
    Size("H", "name"),
    Size("H", "profile"),
    Size("H", "driver"),
    Text("name"),
    Text("profile"),
    Text("driver"),
    Nested("options", OPTIONS),
    Nested("counters", _Counts(TubeCounters.record, TubeCounters.read)),
    Nested("ages", _Counts(ReadyAgeHistogram.record, ReadyAgeHistogram.read)),
    Blob("memory", to_end=True),
    parts={"bucket": dict},
)
"""A tube; ``bucket`` is 0 without a rate limit."""


def write_tube(tube: QueueTube) -> bytes:
    """Return the record of a tube."""
    return _TUBE.write(tube)


class TubeSummary(NamedTuple):
    """The number and the name of a tube, and how many tasks it has."""

    number: int
    name: str
    tasks: int


def summarize(record: bytes) -> TubeSummary:
    """Return a summary of a record, for readers of many tubes: a whole tube has 55 objects."""
    fields, _ = _TUBE.read(record)
    return TubeSummary(fields["number"], fields["name"], sum(fields["counters"].states))


def read_tube(record: bytes, store: Store, limits: Limits) -> QueueTube:
    """Return the tube of a record; its content stays in the store."""
    fields, _ = _TUBE.read(record)
    view = TubeView(
        fields["name"],
        fields["kind"],
        fields["options"],
        fields["created_ms"],
        fields["profile"],
        fields["driver"],
        fields["driver_version"],
    )
    tube = QueueTube(fields["number"], view, store, limits)
    for name in ("next_id", "lane_min", "lane_max", "share", "counters", "ages", "memory"):
        setattr(tube, name, fields[name])
    if tube.bucket is not None:
        tube.bucket.level, tube.bucket.at_ms = fields["bucket"].values()
    tube.subqueue_rates.restore()
    tube.timer = tube.due()
    tube.written = timer_key(tube.timer) if tube.timer is not None else b""
    _open_orders(tube, store, limits)
    tube.ready.restore_state(fields["offers"], fields["virtual_time"])
    tube.ready.types.has_any = fields["has_types"]
    return tube


def _open_orders(tube: QueueTube, store: Store, limits: Limits) -> None:
    """Open the orders of a tube whose waiting tasks are in the store."""
    states = tube.counters.states
    tube.ready = ready_order(tube, store, limits, stored=states[READY] > 0)
    tube.buried = OrderedIndex(
        order_scan(store, BURIED_ORDER, tube.number),
        limits.head_entries_max,
        stored=states[BURIED] > 0,
    )
