"""Write a tube as its record, and read it back; its content has keys of its own."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from taskraft_service.queue.codecs.options_codec import read_options, write_options
from taskraft_service.queue.entities.life_cycle import BURIED, READY
from taskraft_service.queue.entities.ready_ages import ReadyAgeHistogram
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_counters import TubeCounters
from taskraft_service.queue.entities.tube_options import TubeKind, TubeView
from taskraft_service.queue.orders.tube_orders import ready_order
from taskraft_service.queue.store.keys import BURIED_ORDER, order_scan, timer_key
from taskraft_service.queue.store.ordered_index import OrderedIndex

if TYPE_CHECKING:
    from taskraft_service.queue.limits import Limits
    from taskraft_service.queue.store.store import Store

_record: Final = Struct(">IBQqqQ?QQqqqIHHH")


def write_tube(tube: QueueTube) -> bytes:
    """Return the record of a tube."""
    name, profile, driver = tube.name.encode(), tube.profile.encode(), tube.driver.encode()
    bucket = tube.bucket
    head = _record.pack(
        tube.number,
        tube.kind,
        tube.next_id,
        tube.lane_min,
        tube.lane_max,
        tube.ready.offers,
        tube.ready.types.has_any,
        tube.ready.time,
        tube.share,
        tube.created_ms,
        0 if bucket is None else bucket.level,
        0 if bucket is None else bucket.at_ms,
        tube.driver_version,
        len(name),
        len(profile),
        len(driver),
    )
    options = write_options(tube.options)
    counters = tube.counters.record()
    ages = tube.ages.record()
    return b"".join((head, name, profile, driver, options, counters, ages, tube.memory))


def read_tube(record: bytes, store: Store, limits: Limits) -> QueueTube:
    """Return the tube of a record; its content stays in the store."""
    (
        number,
        kind,
        next_id,
        lane_min,
        lane_max,
        offers,
        has_types,
        time,
        share,
        created_ms,
        level,
        at_ms,
        driver_version,
        name_bytes,
        profile_bytes,
        driver_bytes,
    ) = _record.unpack_from(record)
    name_end = _record.size + name_bytes
    profile_end = name_end + profile_bytes
    driver_end = profile_end + driver_bytes
    options, options_end = read_options(record, driver_end)
    view = TubeView(
        record[_record.size : name_end].decode(),
        TubeKind(kind),
        options,
        created_ms,
        record[name_end:profile_end].decode(),
        record[profile_end:driver_end].decode(),
        driver_version,
    )
    tube = QueueTube(number, view, store, limits)
    tube.next_id = next_id
    tube.lane_min = lane_min
    tube.lane_max = lane_max
    if tube.bucket is not None:
        tube.bucket.level, tube.bucket.at_ms = level, at_ms
    tube.subqueue_rates.restore()
    tube.timer = tube.due()
    tube.written = timer_key(tube.timer) if tube.timer is not None else b""
    tube.share = share
    tube.counters = TubeCounters.read(record, options_end)
    tube.ages, ages_end = ReadyAgeHistogram.read(record, options_end + TubeCounters.RECORD_BYTES)
    tube.memory = record[ages_end:]
    _open_orders(tube, store, limits)
    tube.ready.restore_state(offers, time)
    tube.ready.types.has_any = has_types
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
