"""Give a member that has lost its state the state of a peer, with the real ``StateRebuild``."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from taskraft_replication.core.types import SnapshotMeta
from taskraft_replication.errors import (
    LogDamaged,
    MemberRemoved,
    SnapshotUnavailable,
    SnapshotUnusable,
)
from taskraft_replication.snapshots.source import OutgoingSnapshot, SnapshotSource
from taskraft_replication.storage.group_storage import StorageConfig
from taskraft_replication.storage.state_rebuild import StateRebuild
from tests.sim.machine import StagedState
from tests.sim.state_damage import Finder, NextDamage, StateDamage, draw_damage

if TYPE_CHECKING:
    from tests.sim.member import Member

T = TypeVar("T")

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
    for peer in world.peers_of(member):
        damage_sender(member, peer)
        try:
            offered = opened_by(peer)
            meta = offered.meta
            if rebuild.refusal_of(meta) is not None:
                continue
            staged = member.machine.stage_snapshot(meta.index, [offered.content.read(0, 1 << 40)])
        except LogDamaged:
            continue
        except SnapshotUnavailable as error:
            world.count(f"state refused: {error}")
            continue
        except SnapshotUnusable:
            world.count("state refused: a received block is damaged")
            continue
        _install(member, rebuild, meta, staged)
        member.start()
        damage_again(member)
        return
    rebuild.close()
    world.count("state lost: no peer has a usable state")
    world.schedule.after(PAUSE_US, f"repair {member.id}", member.start_again)


def opened_by(sender: Member) -> OutgoingSnapshot:
    """Open the state of a member as its node does, at once.

    Raises:
        SnapshotUnavailable: the state is damaged, or its log is gone.
        LogDamaged: the log of the sender is damaged.
    """
    results: list[OutgoingSnapshot | SnapshotUnavailable] = []
    source = SnapshotSource(sender.machine, sender._storage, AtOnce(), lambda _: None)
    source.open_apart(results.append)
    (result,) = results
    if isinstance(result, SnapshotUnavailable):
        raise result
    return result


class AtOnce:
    """The part of ``Effects`` that opens a snapshot, without a thread."""

    def flush(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        then(work())


def damage_sender(member: Member, sender: Member) -> None:
    """Damage the state of the chosen sender, if its turn has come and another member is whole."""
    is_possible = sender.damage is None and member.world.can_damage_sender(member, sender)
    if is_possible and member.takes_next_damage(NextDamage.SENDER):
        sender.damage = StateDamage(Finder.SENDING)


def damage_again(member: Member) -> None:
    """Damage the state that a repair has just installed, if its turn has come."""
    if not member.is_running or not member.world.can_lose(member):
        return
    if member.takes_next_damage(NextDamage.REPAIRED):
        rng = Random(f"{member.id} {member.world.schedule.now_us} second damage")
        member.world.damage_again(member, draw_damage(rng), rng)


def _install(
    member: Member, rebuild: StateRebuild, meta: SnapshotMeta, staged: StagedState
) -> None:
    """Replace the lost state by the state of a peer."""
    invariants = member.world.invariants
    invariants.check_installable(meta)
    invariants.installed(member, meta.index, staged.state.digest)
    view = rebuild._storage.view
    if meta.index > view.last_index() or view.term(meta.index) != meta.term:
        member.synced_last = None  # the state replaces the log, whose end may be other entries
    rebuild.install(meta, staged.switch)
    rebuild.close()
    member.world.count("state repaired by a peer")
