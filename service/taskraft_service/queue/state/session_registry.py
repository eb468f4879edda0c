"""Hold all sessions by id and number, and state the layout of their records."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import Number, Size, Text
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.state.timers import write_timer
from taskraft_service.queue.store.keys import SESSION, prefix_stop, session_key, timer_key
from taskraft_service.queue.store.store import Store, Write

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


SESSION_RECORD: Final = FieldTable(
    _session,
    Number("number", "Q"),
    Number("attached", "?"),
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
)


class SessionRegistry(dict[str, QueueSession]):
    """All sessions by id: a dictionary that only its own methods change.

    ``number`` is the number of the newest session.
    """

    __slots__ = ("_dirty", "_ended", "by_number", "number")

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.by_number: dict[int, QueueSession] = {}
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

    def add(self, session: QueueSession) -> None:
        """Add an opened session."""
        self[session.id] = session
        self.by_number[session.number] = session

    def remove(self, session: QueueSession) -> None:
        """Remove a session that has ended."""
        del self[session.id]
        del self.by_number[session.number]
        self._ended.append(session)

    def touch(self, session: QueueSession) -> None:
        """Note that a session differs from its record."""
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

    def restore(self, store: Store) -> None:
        """Read all sessions."""
        for _, record in store.scan(SESSION, prefix_stop(SESSION)):
            session, _ = SESSION_RECORD.read(record)
            session.written = timer_key(session.timer) if session.timer is not None else b""
            self.add(session)
