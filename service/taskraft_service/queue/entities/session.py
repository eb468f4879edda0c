"""Define sessions, which are groups of leases that expire together, and hold all sessions."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final, TypeAlias

from taskraft_service.queue.entities.instants import NEVER_MS, shown
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import (
    Flags,
    Nested,
    Number,
    Optional,
    Present,
    Size,
    Text,
    Texts,
)
from taskraft_service.queue.store.indexes import write_timer
from taskraft_service.queue.store.keys import (
    SESSION,
    SESSION_TIMER,
    prefix_stop,
    session_key,
    timer_key,
)
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values that the client gave its session, in the order of the names."""


@value
class SessionView:
    """A session as callers see it; ``expires_ms`` 0: a stream of the session is open."""

    session_id: str
    name: str
    ttr_ms: int
    expires_ms: int
    taken: int
    created_ms: int
    owner: str = ""
    labels: Labels = ()


LABEL_CHARACTERS: Final = 8
"""Number of characters of a session id that events show; the full id is secret."""


class QueueSession:
    """A session.

    ``expires_ms`` is NEVER_MS while a stream is attached; ``held`` has the lease tokens, and
    ``cancelled`` those whose holders are asked to stop.
    """

    __slots__ = (
        "attached",
        "cancelled",
        "created_ms",
        "default_ttr_ms",
        "dirty",
        "expires_ms",
        "held",
        "id",
        "label",
        "labels",
        "name",
        "number",
        "orphaned",
        "owner",
        "timer",
        "ttr_ms",
        "written",
    )

    def __init__(self, number: int, session_id: str, name: str, ttr_ms: int, now_ms: int) -> None:
        """Create a session without leases that does not expire."""
        self.number = number
        self.id = session_id
        self.name = name
        self.label = name or session_id[:LABEL_CHARACTERS]
        self.ttr_ms = ttr_ms
        self.created_ms = now_ms
        self.owner = ""
        """Principal that opened the session; empty without authentication."""
        self.labels: Labels | None = None
        """Labels of the client; None: there are none."""
        self.attached = True
        self.orphaned = False
        """True if the leader changed and no call or stream has used the session since."""
        self.expires_ms = NEVER_MS
        self.default_ttr_ms: int | None = None
        """Default of ``ttr_ms`` without a replicated setting; None: ``ttr_ms`` was set."""
        self.held: dict[int, None] = {}
        """Lease tokens, the oldest first."""
        self.cancelled: dict[int, None] = {}
        """Lease tokens of the tasks with a cancellation request, the earliest request first."""
        self.timer: OrderKey | None = None
        self.dirty = False
        self.written: bytes | None = None
        """Key of the session's timer in the store; empty: the stored session has no timer.

        None: the session is not in the store.
        """

    def due(self) -> OrderKey | None:
        """Return the timer of the session, or None."""
        if self.expires_ms >= NEVER_MS:
            return None
        return (self.expires_ms, SESSION_TIMER, 0, self.number)

    def view(self) -> SessionView:
        """Return the session as callers see it."""
        return SessionView(
            self.id,
            self.name,
            self.ttr_ms,
            shown(self.expires_ms),
            len(self.held),
            self.created_ms,
            self.owner,
            self.labels or (),
        )


_OWN_TTR: Final = -1


def _session(
    number: int,
    id: str,
    name: str,
    ttr_ms: int,
    created_ms: int,
    **others: object,
) -> QueueSession:
    session = QueueSession(number, id, name, ttr_ms, created_ms)
    for attribute, content in others.items():
        setattr(session, attribute, content)
    session.timer = session.due()
    return session


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> Labels:
    return tuple(zip(names, values, strict=True))


def _place(place: int) -> Callable[[Any], object]:
    """Return the function that reads the names (0) or the values (1) of labels."""
    return lambda labels: [label[place] for label in labels]


_LABELS: Final = FieldTable(
    _labels,
    Size("H", "names", "values"),
    Texts("names", of=_place(0)),
    Texts("values", of=_place(1)),
)

SESSION_RECORD: Final = FieldTable(
    _session,
    Number("number", "Q"),
    Flags("B", "attached", Present("labels")),
    Number("orphaned", "?"),
    Number("ttr_ms", "q"),
    Number("default_ttr_ms", "q", absent=_OWN_TTR),
    Number("expires_ms", "q"),
    Number("created_ms", "q"),
    Size("H", "id"),
    Size("H", "name"),
    Size("H", "owner"),
    Text("id"),
    Text("name"),
    Text("owner"),
    Optional(Nested("labels", _LABELS)),
)


class SessionRegistry(dict[str, QueueSession]):
    """All sessions by id: a dictionary that only its own methods change.

    ``number`` is the number of the newest session, and ``by_owner`` has the sessions of each
    principal by id. ``by_number`` also has the ended sessions whose leases have not returned yet.
    """

    __slots__ = ("_dirty", "_ended", "by_number", "by_owner", "number")

    def __init__(self) -> None:
        """Start without sessions."""
        super().__init__()
        self.by_number: dict[int, QueueSession] = {}
        self.by_owner: dict[str, dict[str, QueueSession]] = {}
        self.number = 0
        self._dirty: list[QueueSession] = []
        self._ended: list[QueueSession] = []

    def find(self, session_id: str) -> QueueSession | Refusal:
        """Return a session, or a refusal."""
        session = self.get(session_id)
        if session is None:
            return Refusal(
                Reason.SESSION_NOT_FOUND,
                "the session does not exist or has expired; open a new one",
            )
        return session

    def count_of(self, owner: str) -> int:
        """Return the number of open sessions of a principal."""
        return len(self.by_owner.get(owner, ()))

    def add(self, session: QueueSession) -> None:
        """Add an opened session."""
        self[session.id] = session
        self.by_number[session.number] = session
        self.by_owner.setdefault(session.owner, {})[session.id] = session

    def end(self, session: QueueSession) -> None:
        """Let no caller find a session any more; its leases still know the session."""
        session.expires_ms = NEVER_MS
        self.touch(session)
        del self[session.id]
        owned = self.by_owner[session.owner]
        del owned[session.id]
        if not owned:
            del self.by_owner[session.owner]

    def remove(self, session: QueueSession) -> None:
        """Remove an ended session that has no leases."""
        del self.by_number[session.number]
        self._ended.append(session)

    def touch(self, session: QueueSession) -> None:
        """Mark a session as changed, so that its record is written."""
        if not session.dirty:
            session.dirty = True
            self._dirty.append(session)

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for session in self._ended:
            if session.written is not None:
                writes.append((session_key(session.number), None))
                if session.written:
                    writes.append((session.written, None))
        for session in self._dirty:
            session.dirty = False
            if session.number in self.by_number:
                writes.append((session_key(session.number), SESSION_RECORD.write(session)))
                write_timer(session, writes)
        self._ended.clear()
        self._dirty.clear()

    def restore(self, store: Store, ended: Container[int]) -> None:
        """Read all sessions from the store; ``ended`` has the numbers of the ended ones."""
        for _, record in store.scan(SESSION, prefix_stop(SESSION)):
            session, _ = SESSION_RECORD.read(record)
            session.written = timer_key(session.timer) if session.timer is not None else b""
            if session.number in ended:
                self.by_number[session.number] = session
            else:
                self.add(session)
