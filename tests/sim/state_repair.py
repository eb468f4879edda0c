"""Give a member that has lost its state the state of a peer, with the real ``StateRebuild``."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from taskraft_replication.core.errors import Compacted
from taskraft_replication.core.types import SnapshotMeta
from taskraft_replication.errors import LogDamaged, MemberRemoved, SnapshotUnavailable
from taskraft_replication.storage.group_storage import StorageConfig
from taskraft_replication.storage.state_rebuild import StateRebuild
from tests.sim.machine import FrozenState

if TYPE_CHECKING:
    from tests.sim.member import Member

RECEIVED_DAMAGE_SHARE = 0.3
"""Share of the states that a member with a bad disk receives and finds damaged."""
PAUSE_US = 200_000
"""Time after which a member without a state asks its peers again."""


def repair(member: Member, config: StorageConfig) -> None:
    """Get the state of a peer under the same identity, then start; else try again later."""
    try:
        rebuild = StateRebuild(member.disk, config)
    except MemberRemoved:
        member.stay_away()
        return
    world = member.world
    draw = Random(f"{member.id} {world.schedule.now_us} repair")
    damage_share = RECEIVED_DAMAGE_SHARE if member.machine.is_on_bad_disk else 0.0
    for peer in world.peers_of(member):
        try:
            content = peer.machine.open_snapshot()
            term, conf_state = peer.view.term(content.index), peer.membership_at(content.index)
        except (Compacted, LogDamaged):
            continue
        except SnapshotUnavailable:
            world.count("state refused: blocks of the sender are damaged")
            continue
        if draw.random() < damage_share:
            world.count("state refused: a received block is damaged")
            continue
        meta = SnapshotMeta(content.index, term, conf_state)
        if rebuild.refusal_of(meta) is None:
            _install(member, rebuild, meta, content)
            member.start()
            return
    rebuild.close()
    world.count("state lost: no peer has a usable state")
    world.schedule.after(PAUSE_US, f"repair {member.id}", member.start_again)


def _install(
    member: Member, rebuild: StateRebuild, meta: SnapshotMeta, content: FrozenState
) -> None:
    """Replace the lost state by the state of a peer."""
    member.world.invariants.check_installable(meta)
    view = rebuild._storage.view
    if meta.index > view.last_index() or view.term(meta.index) != meta.term:
        member.synced_last = None  # the state replaces the log, whose end may be other entries
    staged = member.machine.stage_snapshot(meta.index, [content.read(0, 1 << 40)])
    rebuild.install(meta, staged.switch)
    rebuild.close()
    member.has_lost_state = False
    member.world.count("state repaired by a peer")
