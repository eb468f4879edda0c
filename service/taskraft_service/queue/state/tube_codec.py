"""Encode and decode the record of a tube with its options; tasks have separate records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

from taskraft_service.queue.entities.ready_tasks import ReadyAgeHistogram
from taskraft_service.queue.entities.task_codec import RETRY
from taskraft_service.queue.entities.task_state import BURIED, READY
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.entities.tube_options import (
    OPTION_ROWS,
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
from taskraft_service.versions import FORMATS, StateVersion

_WEIGHT: Final = FieldTable(
    lambda subqueue, weight: (subqueue, weight),
    Text("subqueue", of=itemgetter(0)),
    Constant("I", 4),
    Number("weight", "I", of=itemgetter(1)),
)
"""The weight of a sub-queue, stored as a byte string of 4 bytes."""


def options_layout(version: StateVersion) -> FieldTable[TubeOptions]:
    """Return the layout of the options in a format of the store."""
    return FieldTable(
        TubeOptions,
        *(
            Number(row.name, row.code, row.choices or int)
            for row in OPTION_ROWS
            if row.code and FORMATS[row.since].state <= version
        ),
        Size("I", "subqueue_weights"),
        Nested("retry", RETRY),
        Text("dead_letter_tube"),
        Items("subqueue_weights", _WEIGHT),
    )


OPTIONS: Final[Mapping[StateVersion, FieldTable[TubeOptions]]] = {
    version: options_layout(version) for version in StateVersion
}
"""The layout of the options in each format of the store."""


class _Counts(NamedTuple):
    """Codec of counters; the class of the counters encodes them as arrays of numbers."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], tuple[Any, int]]


def _level_of(tube: QueueTube) -> int:
    return 0 if tube.bucket is None else tube.bucket.level


def _level_at_ms(tube: QueueTube) -> int:
    return 0 if tube.bucket is None else tube.bucket.at_ms


_BEFORE_OPTIONS: Final = (
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
)
"""The fields of a tube before its options; ``bucket`` is 0 without a rate limit."""

_BEGINNING: Final[FieldTable[dict[str, Any]]] = FieldTable(
    dict, *_BEFORE_OPTIONS, parts={"bucket": dict}
)


def tube_layout(options: FieldTable[TubeOptions]) -> FieldTable[dict[str, Any]]:
    """Return the layout of a tube whose options have the given layout."""
    return FieldTable(
        dict,
        *_BEFORE_OPTIONS,
        Nested("options", options),
        Nested("counters", _Counts(TubeCounters.record, TubeCounters.read)),
        Nested("ages", _Counts(ReadyAgeHistogram.record, ReadyAgeHistogram.read)),
        Blob("memory", to_end=True),
        parts={"bucket": dict},
    )


TUBES: Final = {version: tube_layout(options) for version, options in OPTIONS.items()}
"""The layout of a tube in each format of the store."""


def write_tube(tube: QueueTube, version: StateVersion) -> bytes:
    """Return the record of a tube in a format of the store."""
    return TUBES[version].write(tube)


def convert_tube(record: bytes, old: StateVersion, new: StateVersion) -> bytes:
    """Return the record of a tube with its options in another format."""
    _, begin = _BEGINNING.read(record)
    options, end = OPTIONS[old].read(record, begin)
    return record[:begin] + OPTIONS[new].write(options) + record[end:]


class TubeSummary(NamedTuple):
    """The number and the name of a tube, and how many tasks it has."""

    number: int
    name: str
    tasks: int


def summarize(record: bytes, version: StateVersion) -> TubeSummary:
    """Return a summary of a record, for readers of many tubes: a whole tube has 55 objects."""
    fields, _ = TUBES[version].read(record)
    return TubeSummary(fields["number"], fields["name"], sum(fields["counters"].states))


def read_tube(record: bytes, store: Store, limits: Limits, version: StateVersion) -> QueueTube:
    """Return the tube of a record; its content stays in the store."""
    fields, _ = TUBES[version].read(record)
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
