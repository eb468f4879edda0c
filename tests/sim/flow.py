"""Check the leader's view of its followers and the in-flight windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.progress import Progress, ProgressState
from taskraft_replication.core.types import Entry, LogIndex, MemberId, Term
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.member import Member

_Place = tuple[LogIndex, LogIndex]
"""Match index and next index of a follower, as its leader knows them."""


class Flow:
    """The leaders' records of their followers."""

    def __init__(self, members: dict[MemberId, Member]) -> None:
        self._members = members
        self._places: dict[tuple[MemberId, Term], dict[MemberId, _Place]] = {}

    def check(self, leader: Member) -> None:
        """Check the leader's records: every record that has changed, and all limits."""
        core = leader.driver.core
        self._check_uncommitted(leader)
        key = (leader.id, core.term)
        before = self._places.get(key, {})
        now: dict[MemberId, _Place] = {}
        for peer, progress in core._member.tracker.progress.items():
            place = now[peer] = (progress.match, progress.next)
            if place == before.get(peer):
                continue
            self._check_place(leader, peer, place, before.get(peer))
            if peer != leader.id and progress.state is ProgressState.REPLICATE:
                self._check_window(leader, peer, progress)
        self._places[key] = now

    def _check_place(
        self, leader: Member, peer: MemberId, place: _Place, before: _Place | None
    ) -> None:
        """Check that ``next`` is above ``match``, which never falls in a term. [4]"""
        match, following = place
        demand(following > match, f"next <= match for {peer} at {leader.id}")
        if before is None or before[0] != match:
            demand(
                before is None or match > before[0],
                f"{leader.id} knew that {peer} has more than {match} in the same term",
            )
            self._check_match(leader, peer, match)

    def _check_match(self, leader: Member, peer_id: MemberId, match: LogIndex) -> None:
        """Check that entries counted as stored are synced, on the leader too. [3]"""
        peer = self._members[peer_id]
        # A flipped bit may be in the hard state of a stopped member; its start will notice it.
        is_flipped = peer_id in peer.world.flipped and not peer.is_running
        if peer.is_damaged or is_flipped:
            return
        if peer.durable_hard_state().term > leader.driver.core.term:
            return
        at = leader.term_at(match)
        demand(
            at is None or peer.has_synced(match, at),
            f"{leader.id} counts {match} as stored by {peer_id}, which has not synced it",
        )

    def _check_window(self, leader: Member, peer: MemberId, progress: Progress) -> None:
        """Check the limits of the in-flight window of a follower. [8]

        The message that crosses the byte limit is still sent. Such a message may hold a single
        large entry.
        """
        config, window = leader.config, progress.inflights
        count = len(window)
        demand(
            count <= config.inflight_messages_max,
            f"{leader.id} has {count} messages in flight to {peer}",
        )
        entries = self._between(leader, progress.match, progress.next)
        size = payload_bytes(entries)
        demand(
            size <= window.payload_bytes,
            f"{leader.id} counts {window.payload_bytes} bytes in flight to {peer}, not {size}",
        )
        message_max = max([config.message_bytes_max, *(len(each.data) for each in entries)])
        demand(
            size < config.inflight_bytes_max + message_max,
            f"{leader.id} has {size} bytes in flight to {peer}",
        )

    def _check_uncommitted(self, leader: Member) -> None:
        """Check that entries counted as not applied are in the log behind the applied index. [8]"""
        core = leader.driver.core
        claimed = core._member.uncommitted_bytes
        if claimed:
            rest = self._between(leader, core.applied_index, LogIndex(core.last_index + 1))
            size = payload_bytes(rest)
            demand(claimed <= size, f"{leader.id} counts {claimed} uncommitted bytes, not {size}")

    def _between(self, member: Member, before: LogIndex, end: LogIndex) -> list[Entry]:
        """Return the entries behind ``before`` and in front of ``end`` that are in the log."""
        log = member.driver.core._member.log
        first = LogIndex(max(before + 1, log.first_index()))
        found: list[Entry] = []
        while first < end:
            found += log.entries(first, end, 1 << 30)
            first = LogIndex(found[-1].index + 1)
        return found
