"""Choose which followers get an entry at once: as many as its commit waits for.

The others get it a little later, with the entries after it in one frame and one sync; when one of
the first is slow, their answers make up for it. Half the frames of three members are saved that
way. A hedged request: Dean, Barroso, The Tail at Scale, CACM 56 (2), 2013.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Message, MessageKind
from taskraft_replication.peers.contract import PreferredSet


class PreferredFollowers:
    """The followers that were first to acknowledge, of late.

    Args:
        own_id: this member, whose own log counts for a commit like that of any other voter.
        tell: hears of each new choice.
    """

    def __init__(self, own_id: MemberId, tell: Callable[[PreferredSet], None]) -> None:
        self._own_id: Final = own_id
        self._tell = tell
        self._conf_state = ConfState()
        self._ranked: list[MemberId] = []
        """Voters in the order of their last acknowledgement that a commit waited for."""
        self._chosen: PreferredSet = None

    def received(self, messages: Sequence[Message], commit: LogIndex) -> None:
        """Take note of the acknowledgements that come while ``commit`` is the commit index."""
        for message in messages:
            if (
                message.kind is MessageKind.APPEND_REPLY
                and message.index > commit
                and not message.reject
            ):
                self._acknowledged(message.sender)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Count by another membership from now on."""
        self._conf_state = conf_state
        self._choose()

    def _acknowledged(self, member: MemberId) -> None:
        """Take note that ``member`` has acknowledged an entry that is not committed yet."""
        if self._ranked and self._ranked[0] == member:
            return
        if member in self._ranked:
            self._ranked.remove(member)
        self._ranked.insert(0, member)
        self._choose()

    def _choose(self) -> None:
        voters = self._conf_state.voters
        self._ranked = [member for member in self._ranked if member in voters]
        others_needed = len(voters) // 2
        chosen: PreferredSet = frozenset(self._ranked[:others_needed])
        # Until enough are known, and in a joint configuration, everybody may be needed.
        is_known = len(self._ranked) >= others_needed and self._own_id in voters
        if not is_known or self._conf_state.voters_outgoing:
            chosen = None
        if chosen != self._chosen:
            self._chosen = chosen
            self._tell(chosen)
