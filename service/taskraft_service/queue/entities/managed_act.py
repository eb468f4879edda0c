"""Define an act of management: a call that needs the permission to manage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.values import value

NAMES_MAX: Final = 20
"""Maximum number of names of one act."""
DETAIL_CHARACTERS_MAX: Final = 256
"""Maximum length of the detail of an act."""


@value
class ManagedAct:
    """An act of management.

    Args:
        principal: the principal; empty if authentication is off.
        peer: address of the client.
        call: name of the method, such as "DropTube".
        names: names for which the caller needed the permission to manage.
        detail: fields of the request that identify what was changed; never payloads.
    """

    principal: str
    peer: str
    call: str
    names: Sequence[str]
    detail: str
