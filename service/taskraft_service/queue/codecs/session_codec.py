"""State the layout of a session; its leases are not part of the record."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import Number, Size, Text
from taskraft_service.queue.entities.session import QueueSession

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
