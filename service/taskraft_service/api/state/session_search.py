"""Find the sessions that a caller may list, by id or by the first characters of an id."""

from __future__ import annotations

from typing import Any, Final

from taskraft.v1 import error_pb2
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import SHOWN_SESSION_ID_LENGTH
from taskraft_service.access.permissions import ALL_TUBES, Verb
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import SESSION_ID, Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.queue.entities.session import SessionView

SESSION_STEPS: Final = 3
"""Number of steps that stand for reading the owner of a session."""
BUCKET_LENGTH: Final = 2
"""Number of characters of a session id by which ids are divided before they are sorted, so that no
list is long. Ids are random."""
BUCKET_STEPS: Final = 400
"""Number of steps that stand for sorting the ids of one of the 256 parts of 100 000 sessions."""


class SessionSearch:
    """Searches the sessions of the state that this node has applied.

    A caller may list its own sessions. A caller that may manage the whole cluster may list all.
    """

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    async def ids(self, prefix: str, call: UnaryCall[Any]) -> list[str]:
        """Return the ids of the sessions with a prefix that the caller may list, in order.

        Raises:
            CallRefused: TOO_MANY_STEPS.
        """
        sees_all = call.caller.may(Verb.MANAGE, ALL_TUBES)

        def is_listed(session_id: str) -> bool:
            if not session_id.startswith(prefix):
                return False
            view = None if sees_all else self._reader.applied.session(session_id)
            return sees_all or (view is not None and call.caller.owns(view.owner))

        buckets: dict[str, list[str]] = {}
        async for part in call.steps.slices(self._reader.applied.session_ids(), SESSION_STEPS):
            for session_id in filter(is_listed, part):
                buckets.setdefault(session_id[:BUCKET_LENGTH], []).append(session_id)
        sorted_buckets = await call.steps.in_slices(
            sorted(buckets.items()), lambda bucket: sorted(bucket[1]), BUCKET_STEPS
        )
        return [session_id for bucket in sorted_buckets for session_id in bucket]

    async def find(self, wanted: str, call: UnaryCall[Any]) -> SessionView:
        """Return the only session with this id, or with this prefix, that the caller may list.

        Raises:
            CallRefused: SESSION_NOT_FOUND, TOO_MANY_STEPS.
        """
        ids = await self.ids(wanted, call) if len(wanted) == SHOWN_SESSION_ID_LENGTH else [wanted]
        found = [
            view
            for one in ids
            if (view := self._reader.queues.session(one)) is not None
            and _may_list(view, call.caller)
        ]
        if len(found) != 1:
            raise CallRefused(
                error_pb2.Error.SESSION_NOT_FOUND,
                "several sessions begin with this id; give the whole id"
                if found
                else "there is no such session, or it belongs to another principal",
            )
        return found[0]


def _may_list(view: SessionView, caller: Caller) -> bool:
    """Return whether the caller owns the session or may manage the whole cluster."""
    return caller.owns(view.owner) or caller.may(Verb.MANAGE, ALL_TUBES)


def check_session_search(violations: Violations, path: str, wanted: str) -> None:
    """Check the id of a session, or its first characters as ListSessions returns them."""
    if len(wanted) != SHOWN_SESSION_ID_LENGTH and SESSION_ID.fullmatch(wanted) is None:
        shown = SHOWN_SESSION_ID_LENGTH
        violations.add(path, f"neither a UUID nor the first {shown} characters of one")
