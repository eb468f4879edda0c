"""The event of one transition of one task, and the stamp of the entry that it belongs to."""

from __future__ import annotations

from typing import NamedTuple


class EntryStamp:
    """Revision and timestamp of the events of one log entry, and the number of events so far.

    Attributes:
        revision: index of the entry.
        at_ms: timestamp of the entry.
        place: number of events that the entry has made; the next event gets this place.
    """

    __slots__ = ("at_ms", "place", "revision")

    def __init__(self, revision: int, at_ms: int) -> None:
        self.revision = revision
        self.at_ms = at_ms
        self.place = 0


class Event(NamedTuple):
    """One transition of one task; fields as in taskraft.v1.ChangeEvent, without its ``seq``."""

    revision: int
    place: int
    at_ms: int
    tube: str
    task_id: int
    kind: int
    from_state: int
    to_state: int
    attempt: int
    priority: int
    created_ms: int
    since_ms: int
    subqueue: str
    session: str
    reason: str
    type: str
    payload_bytes: int
    outcome: int
