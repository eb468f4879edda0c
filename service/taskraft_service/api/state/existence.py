"""Confirm that the tubes and sessions which a call names exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import owns_session
from taskraft_service.api.rpc.status import CallRefused, tube_not_found
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.languages.patterns import is_pattern


class ExistenceCheck(Protocol):
    """Confirms that what a call names exists."""

    async def tubes(self, sources: Sequence[str]) -> None:
        """Refuse with TUBE_NOT_FOUND if a source names a tube that does not exist."""

    async def session(self, session_id: str, caller: Caller) -> None:
        """Refuse with SESSION_NOT_FOUND if there is no such session, or it is another's."""


class LinearizableExistenceCheck:
    """Looks at what is applied; before it says no, it asks whether that is the last word."""

    def __init__(self, reading: QueueReader, *, lenient: Callable[[], bool]) -> None:
        self._reading = reading
        self._lenient = lenient

    async def tubes(self, sources: Sequence[str]) -> None:
        """See ``ExistenceCheck``; with automatic creation an unknown tube may come into being."""
        if self._lenient():
            return
        for source in sources:
            if is_pattern(source):
                continue
            if self._reading.applied.tube(source) is None:
                await self._reading.barrier()
                if self._reading.applied.tube(source) is None:
                    raise tube_not_found(source)

    async def session(self, session_id: str, caller: Caller) -> None:
        """See ``ExistenceCheck``."""
        if session_id and not owns_session(self._reading.applied, session_id, caller):
            await self._reading.barrier()
            if not owns_session(self._reading.applied, session_id, caller):
                raise CallRefused(error_pb2.Error.SESSION_NOT_FOUND, "there is no such session", {})
