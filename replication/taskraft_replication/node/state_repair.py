"""Give a member whose state is lost the state of a peer, before the member takes part.

The member keeps its identity, because its log and its vote are undamaged. Until the end of the
repair, the member neither votes nor answers peers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from itertools import count
from typing import Final

from grpc import aio

from taskraft_replication.core.types import MemberInfo
from taskraft_replication.errors import (
    FormatUnknown,
    MessageMalformed,
    SnapshotBroken,
    StateLost,
)
from taskraft_replication.machine import StagedState, StateMachine
from taskraft_replication.membership.roster import with_configured
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.open_storage import open_rebuild
from taskraft_replication.peers.contract import Membership, process_id
from taskraft_replication.peers.log_transfer import OfferedLog
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.peers.state_transfer import FetchedState, fetch_state
from taskraft_replication.storage.snapshot_inbox import SnapshotInbox
from taskraft_replication.storage.state_rebuild import StateRebuild

FIRST_PAUSE_SECONDS: Final = 0.5
PAUSE_SECONDS_MAX: Final = 10.0
"""First and maximum pause after no peer has sent a usable state, in seconds; each pause is twice
the pause before.
"""

_log = logging.getLogger(__name__)


def first_peer(peers: int) -> int:
    """Return the position of the peer that is asked first.

    A repair may follow a repair after which the state was found wrong, and must not ask the same
    peer again.
    """
    return secrets.randbelow(peers)


async def repair_state(
    config: NodeConfig,
    machine: StateMachine,
    security: PeerSecurity | None,
    offer: Callable[[OfferedLog], object],
    report: Callable[[str], object],
) -> None:
    """Replace the state of ``machine`` by the state of a peer; retry until a peer has answered.

    Each attempt begins with another peer, because the state of a peer may be unusable.

    Args:
        config: the settings of the member.
        machine: a machine whose state is empty or older than the log.
        security: certificates of the peer port.
        offer: lets other members read the log of this member meanwhile.
        report: receives the reason for which an attempt has failed.

    Raises:
        LogDamaged: the log or the vote is damaged too, so the member must be replaced.
        StateLost: there is no other member.
        FormatUnknown: all peers have sent states that this release does not read.
    """
    rebuild = await open_rebuild(config)
    try:
        roster = with_configured(rebuild.roster, config.members, rebuild.roster)
        peers = [
            info for info in roster.members if info.member != config.member_id and info.peer_address
        ]
        if not peers:
            raise StateLost(
                "the state is lost, and no other member has it; restore a backup, see "
                "docs/disaster.md"
            )
        inbox = SnapshotInbox(rebuild.fs, rebuild.metadata.directory)
        attempts = _Attempts(config, rebuild, machine, security, inbox, report)
        offer(OfferedLog(attempts.own, roster, rebuild))
        begin = first_peer(len(peers))
        for attempt in count():
            first = (begin + attempt) % len(peers)
            for peer in (*peers[first:], *peers[:first]):
                if await attempts.succeed_with(peer):
                    return
            if len(attempts.unknown_formats) == len(peers):
                raise attempts.unknown_formats[-1]
            attempts.unknown_formats.clear()
            await asyncio.sleep(min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2 ** min(attempt, 9)))
    finally:
        await asyncio.to_thread(rebuild.close)


class _Attempts:
    """Attempts to get the state of a peer; see ``repair_state``."""

    def __init__(
        self,
        config: NodeConfig,
        rebuild: StateRebuild,
        machine: StateMachine,
        security: PeerSecurity | None,
        inbox: SnapshotInbox,
        report: Callable[[str], object],
    ) -> None:
        self._rebuild = rebuild
        self._machine = machine
        self._security = security
        self._inbox = inbox
        self._report = report
        self.unknown_formats: list[FormatUnknown] = []
        """The refusals of states that peers of other releases have sent in this round."""
        self.own = Membership(
            config.cluster_id,
            config.group_id,
            config.member_id,
            rebuild.incarnation,
            rebuild.directory_id,
            config.members[config.member_id].peer_address,
            program=config.program,
            start_id=process_id(),
        )

    async def succeed_with(self, peer: MemberInfo) -> bool:
        """Fetch the state of a peer and use it; return False if the peer has no usable state."""
        try:
            fetched = await fetch_state(
                peer, self.own, self._security, self._inbox, self._rebuild.refusal_of
            )
            staged = await self._stage(fetched)
        except aio.AioRpcError as error:
            reason = str(error.details())
        except (SnapshotBroken, MessageMalformed, OSError) as error:  # includes TimeoutError
            reason = str(error) or type(error).__name__
        except FormatUnknown as error:
            self.unknown_formats.append(error)
            reason = str(error)
        else:
            await asyncio.to_thread(self._rebuild.install, fetched.meta, staged.switch)
            staged.adopt()
            await asyncio.to_thread(staged.discard)
            _log.warning("the state was rebuilt: entry %d, from a peer", fetched.meta.index)
            return True
        reason = f"cannot use the state of {peer.name}: {reason}"
        _log.warning("%s; trying the next member", reason)
        self._report(reason)
        return False

    async def _stage(self, fetched: FetchedState) -> StagedState:
        """Build a fetched state, beside the copy that is set aside, and read all of its blocks.

        Raises:
            SnapshotBroken: the content is no valid state.
            FormatUnknown: this release does not read the state.
            OSError: the disk has no room for both.
        """
        try:
            return await asyncio.to_thread(
                self._machine.stage_snapshot,
                fetched.meta.index,
                self._inbox.chunks(fetched.name),
            )
        finally:
            self._inbox.discard(fetched.name)
