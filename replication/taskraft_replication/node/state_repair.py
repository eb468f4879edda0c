"""Give a member whose state is lost the state of a peer, before the member takes part.

The member keeps its identity, because its log and its vote are undamaged. Until the end of the
repair, the member neither votes nor answers peers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import count
from typing import Final

from grpc import aio

from taskraft_replication.core.types import MemberInfo
from taskraft_replication.errors import MessageMalformed, SnapshotBroken, StateLost
from taskraft_replication.machine import StateMachine
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.open_storage import open_rebuild
from taskraft_replication.peers.contract import Membership
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


async def repair_state(
    config: NodeConfig, machine: StateMachine, security: PeerSecurity | None
) -> None:
    """Replace the state of ``machine`` by the state of a peer; retry until a peer has answered.

    Args:
        config: the settings of the member.
        machine: a machine whose state is empty or older than the log.
        security: certificates of the peer port.

    Raises:
        LogDamaged: the log or the vote is damaged too, so the member must be replaced.
        StateLost: there is no other member.
    """
    rebuild = await open_rebuild(config)
    try:
        peers = [
            info
            for info in rebuild.roster.members
            if info.member != config.member_id and info.peer_address
        ]
        if not peers:
            raise StateLost(
                "the state is lost, and no other member has it; restore a backup, see "
                "docs/disaster.md"
            )
        inbox = SnapshotInbox(rebuild.fs, rebuild.metadata.directory)
        for attempt in count():
            fetched = await _ask(config, rebuild, peers, security, inbox)
            if fetched is not None and await _install(rebuild, machine, inbox, fetched):
                return
            await asyncio.sleep(min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2 ** min(attempt, 9)))
    finally:
        await asyncio.to_thread(rebuild.close)


async def _ask(
    config: NodeConfig,
    rebuild: StateRebuild,
    peers: Sequence[MemberInfo],
    security: PeerSecurity | None,
    inbox: SnapshotInbox,
) -> FetchedState | None:
    """Ask the peers in turn; return the first usable state."""
    own = Membership(
        config.cluster_id,
        config.group_id,
        config.member_id,
        rebuild.incarnation,
        rebuild.directory_id,
        config.members[config.member_id].peer_address,
        program=config.program,
    )
    for peer in peers:
        try:
            return await fetch_state(peer, own, security, inbox, rebuild.refusal_of)
        except aio.AioRpcError as error:
            reason = str(error.details())
        except (SnapshotBroken, MessageMalformed, OSError) as error:  # includes TimeoutError
            reason = str(error) or type(error).__name__
        _log.warning("cannot fetch the state of %s: %s; trying the next member", peer.name, reason)
    return None


async def _install(
    rebuild: StateRebuild, machine: StateMachine, inbox: SnapshotInbox, fetched: FetchedState
) -> bool:
    """Build the state and select it; return False if the content is no valid state."""
    meta = fetched.meta
    try:
        staged = await asyncio.to_thread(
            machine.stage_snapshot, meta.index, inbox.chunks(fetched.name)
        )
    except SnapshotBroken as error:
        _log.warning("the fetched state cannot be used: %s", error)
        return False
    finally:
        inbox.discard(fetched.name)
    await asyncio.to_thread(rebuild.install, meta, staged.switch)
    staged.adopt()
    await asyncio.to_thread(staged.discard)
    _log.warning("the state was rebuilt: entry %d, from a peer", meta.index)
    return True
