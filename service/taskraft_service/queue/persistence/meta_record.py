"""Write and read the meta record: the numbers of the queue that belong to no tube and no task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import (
    Blob,
    Constant,
    Items,
    Nested,
    Number,
    Size,
    Text,
)
from taskraft_service.queue.feed.feed_partition import PARTITION_NUMBERS
from taskraft_service.queue.state.dependents import DEPENDENTS_NUMBERS
from taskraft_service.queue.state.failures import FAILURE_NUMBERS
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.replicated_settings import SETTINGS
from taskraft_service.queue.state.tube_registry import TUBE_IN_CLEANUP, TubeInCleanup
from taskraft_service.queue.store.keys import META
from taskraft_service.queue.store.store import Store

FORMAT: Final = 12
"""Format version of the store; opening a store of another version fails."""

REQUEST_NUMBERS: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict,
    Number("bucket", "Q"),
    Number("started_ms", "q"),
    Number("count", "Q"),
    Number("count_before", "Q"),
)
_WALL: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict, Number("wall_offset_ms", "q"), Number("event_floor_ms", "q")
)


def _in_cleanup(state: QueueState) -> Sequence[TubeInCleanup]:
    return state.removals.in_cleanup()


def _wall_of(state: QueueState) -> bytes:
    """Return the numbers of the wall clock; empty while both are 0, as in earlier releases."""
    return _WALL.write(state) if state.wall_offset_ms or state.event_floor_ms else b""


_META: Final[FieldTable[dict[str, Any]]] = FieldTable(
    dict,
    Constant("B", FORMAT),
    Number("index", "Q"),
    Number("now_ms", "q"),
    Number("token", "Q"),
    Number("last_tube", "I", of="tubes.number"),
    Number("last_session", "Q", of="sessions.number"),
    Items("removals", TUBE_IN_CLEANUP, of=_in_cleanup),
    Nested("settings", SETTINGS),
    Nested("requests", REQUEST_NUMBERS),
    Size("H", "partitions"),
    Size("H", "feed_id"),
    Text("feed_id", of="feed.feed_id"),
    Items("partitions", PARTITION_NUMBERS, of="feed.partitions"),
    Number("last_group", "Q", of="groups.number"),
    Nested("failures", FAILURE_NUMBERS),
    Nested("dependents", DEPENDENTS_NUMBERS),
    Blob("wall", of=_wall_of, to_end=True),
)


class UnknownFormatError(Exception):
    """Report a store in the format of another version.

    The operator must start the matching version or use an empty data directory.
    """


def write_meta(state: QueueState) -> bytes:
    """Return the meta record of a state."""
    return _META.write(state)


def restore_meta(state: QueueState, meta: bytes) -> None:
    """Set the numbers of a state to those of a meta record.

    Raises:
        UnknownFormatError: the record has another format.
    """
    if meta[0] != FORMAT:
        raise UnknownFormatError(f"the store has format {meta[0]}, this version reads {FORMAT}")
    fields, end = _META.read(meta)
    assert end == len(meta)
    state.index, state.now_ms, state.token = fields["index"], fields["now_ms"], fields["token"]
    state.tubes.number = fields["last_tube"]
    state.sessions.number = fields["last_session"]
    state.groups.number = fields["last_group"]
    state.settings = fields["settings"]
    state.removals.restore(fields["removals"], state.store, state.limits)
    state.requests.restore(**fields["requests"])
    state.feed.restore(fields["feed_id"], fields["partitions"])
    state.failures.restore(**fields["failures"])
    state.dependents.restore(**fields["dependents"])
    if fields["wall"]:
        wall, _ = _WALL.read(fields["wall"])
        state.wall_offset_ms, state.event_floor_ms = wall["wall_offset_ms"], wall["event_floor_ms"]


def stored_index(store: Store) -> int:
    """Return the applied index of the state in a store; 0 for an empty store."""
    meta = store.get(META)
    return 0 if meta is None else int(_META.read(meta)[0]["index"])
