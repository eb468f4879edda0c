"""Send new entries immediately only to the followers that are needed for a quorum.

Preferred are the followers whose acknowledgements most recently counted towards a commit. The other
followers get the entry up to 20 ms later, batched with the entries after it into one frame and one
fsync. If a preferred follower is slow, the acknowledgement of another follower completes the
quorum. With three members this halves the number of frames. The idea is that of hedged requests:
Dean, Barroso, The Tail at Scale, CACM 56 (2), 2013.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, Message, MessageKind
from taskraft_replication.peers.contract import PreferredSet


class PreferredFollowers:
    """The followers whose acknowledgements most recently completed a quorum.

    Args:
        own_id: this member, whose own log counts for a commit like that of any voter.
        tell: receives each new choice.
    """

    def __init__(self, own_id: MemberId, tell: Callable[[PreferredSet], None]) -> None:
        self._own_id: Final = own_id
        self._tell = tell
        self._conf_state = ConfState()
        self._ranked: list[MemberId] = []
        """Voters, ordered by their last acknowledgement of an uncommitted entry, newest first."""
        self._chosen: PreferredSet = None

    def received(self, messages: Sequence[Message], commit: LogIndex) -> None:
        """Record the acknowledgements of entries above ``commit``, the current commit index."""
        for message in messages:
            if (
                message.kind is MessageKind.APPEND_REPLY
                and message.index > commit
                and not message.reject
            ):
                self._acknowledged(message.sender)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Use another configuration from now on."""
        self._conf_state = conf_state
        self._choose()

    def _acknowledged(self, member: MemberId) -> None:
        """Record that ``member`` has acknowledged an uncommitted entry."""
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
        # Prefer all members until enough are known, and in a joint configuration.
        is_known = len(self._ranked) >= others_needed and self._own_id in voters
        if not is_known or self._conf_state.voters_outgoing:
            chosen = None
        if chosen != self._chosen:
            self._chosen = chosen
            self._tell(chosen)
