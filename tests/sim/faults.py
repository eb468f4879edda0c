"""Inject the decided faults, and repair them at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, ClassVar

from taskraft_replication.core.types import MemberId, RaftRole
from tests.sim.disk import SEGMENTS
from tests.sim.machine import NOTHING, Durable
from tests.sim.planned_crashes import PlannedCrashes
from tests.sim.state_damage import Finder, NextDamage, StateDamage, draw_damage
from tests.sim.storage_thread import SYNC_US

if TYPE_CHECKING:
    from tests.sim.member import Member
    from tests.sim.world import World

LEADER_SHARE = 0.4
KINDS_SHARE = 0.4
_SHARES = {
    "reconfigure": 0.7,
    "plan_crashes": 0.6,
    "leave_uncommitted": 0.75,
    "damage_state": 0.5,
}
"""Share of the runs in which a kind of fault occurs: 0.4 by default, more for effective kinds."""

LATE_SHARE = 0.2
"""Share of restarts after which messages to the previous incarnation are still delivered."""

DAY_MS = 86_400_000


class Faults:
    """All faults. A majority of disks stays undamaged, as every guarantee requires."""

    def __init__(self, world: World, rng: Random) -> None:
        """``rng`` chooses the kinds of faults of this run.

        Runs with few kinds of faults get further than runs in which all kinds interfere (Groce et
        al., Swarm Testing, ISSTA 2012).
        """
        self._world = world
        self._states: dict[MemberId, Durable] = {}
        """Older states of members."""
        self.planned_crashes = PlannedCrashes(world, rng)
        kinds = [
            each for each in self._WEIGHTS if rng.random() < _SHARES.get(each.__name__, KINDS_SHARE)
        ]
        self._kinds = [*kinds, *self._MENDING]
        self._weights = [
            *(self._WEIGHTS[each] * rng.choice((1, 1, 4)) for each in kinds),
            *self._MENDING.values(),
        ]

    def strike(self, rng: Random) -> None:
        """Start one of the faults, or end some of them."""
        (kind,) = rng.choices(self._kinds, self._weights)
        kind(self, rng)

    def _count(self, name: str) -> None:
        self._world.count(f"fault: {name}")

    def _some(self, rng: Random) -> Member | None:
        """Choose a running member, often the leader, where faults have the largest effect."""
        leader = self._world.leader
        if leader is not None and rng.random() < LEADER_SHARE:
            return leader
        running = self._world.running
        return rng.choice(running) if running else None

    def _any(self, rng: Random) -> Member:
        """Choose any member, often the leader."""
        leader = self._world.leader
        if leader is not None and rng.random() < LEADER_SHARE:
            return leader
        return rng.choice([*self._world.members.values()])

    def _link(self, rng: Random) -> tuple[MemberId, MemberId]:
        one, other = self._any(rng).id, rng.choice([*self._world.members])
        return rng.choice(((one, other), (other, one)))

    # Processes

    def end_life(self, member: Member, name: str, *, power: bool, rng: Random) -> None:
        """End a process, and start it again after a while."""
        self._count(name)
        self._world.note(f"{name} {member.id}")
        member.stop(power=power)
        if rng.random() < LATE_SHARE:
            self._count("messages to an earlier life")
        else:
            self._world.network.forget(member.id)
        self._world.schedule.after(
            rng.choice((1000, 100_000, 1_000_000)), f"start {member.id}", self._starter(member)
        )

    def _starter(self, member: Member) -> Callable[[], None]:
        def start() -> None:
            if not member.is_running and not member.is_damaged:
                member.start()

        return start

    def ended(self, member: Member, why: str) -> None:
        """Handle a member that stopped by itself, as it must when its disk fails."""
        if not member.is_damaged:
            rng = self._world.rng
            self.end_life(member, "stopped by itself", power=rng.random() < 0.5, rng=rng)
            return
        assert member.id in self._world.flipped, (
            f"{member.id} reported damage although its files are undamaged: {why}"
        )
        self._count("damage found")

    def kill(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None:
            self.end_life(member, "kill", power=False, rng=rng)

    def lose_power(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None:
            self.end_life(member, "power loss", power=True, rng=rng)

    def lose_power_everywhere(self, rng: Random) -> None:
        for member in self._world.running:
            self.end_life(member, "power loss of all", power=True, rng=rng)

    def plan_crashes(self, rng: Random) -> None:
        """Plan crashes right after rare events, once or several times."""
        self.planned_crashes.plan(rng)

    def pause(self, rng: Random) -> None:
        member = self._some(rng)
        if member is None:
            return
        self._count("pause")
        member.is_paused = True

        def resume() -> None:
            member.is_paused = False

        self._world.schedule.after(rng.randrange(1_500_000), f"resume {member.id}", resume)

    # Network

    def cut_off(self, rng: Random) -> None:
        self._count("cut off")
        lonely = self._any(rng).id
        for other in self._world.members:
            self._world.network.cut |= {(lonely, other), (other, lonely)}

    def cut_in_two(self, rng: Random) -> None:
        self._count("cut in two")
        members = [*self._world.members]
        near = set(rng.sample(members, rng.randrange(len(members) + 1)))
        self._world.network.cut |= {
            (one, other) for one in members for other in members if (one in near) != (other in near)
        }

    def cut_one_way(self, rng: Random) -> None:
        self._count("one-way cut")
        self._world.network.cut.add(self._link(rng))

    def cut_pair(self, rng: Random) -> None:
        self._count("cut between two")
        one, other = self._link(rng)
        self._world.network.cut |= {(one, other), (other, one)}

    def leave_uncommitted(self, rng: Random) -> None:
        """Give a leader entries that reach no majority: other leaders will replace the entries."""
        leader = self._world.leader
        if leader is None or leader.is_paused:
            return
        self._count("entries of a lost leader")
        voters = [each for each in leader.configuration.voters if each != leader.id]
        near = set(rng.sample(voters, rng.randrange(len(voters) // 2 + 1)))
        network = self._world.network
        apart = {(leader.id, each) for each in self._world.members if each not in near}
        if rng.random() < 0.7:
            apart |= {(other, one) for one, other in apart}
        network.cut |= apart
        for _ in range(rng.randrange(1, 6)):
            self._world.workload.call(leader, rng)

        def mend() -> None:
            network.cut -= apart

        self._world.schedule.after(rng.randrange(700_000, 3_000_000), "mend", mend)

    def mend_network(self, _: Random) -> None:
        self._world.network.heal()

    def lossy(self, rng: Random) -> None:
        self._count("bad network")
        network = self._world.network
        network.drop = rng.choice((0.0, 0.02, 0.3))
        network.double = rng.choice((0.0, 0.1))
        network.reorder = rng.choice((0.0, 0.2))
        network.bytes_per_second = rng.choice((None, 20_000, 1_000_000))
        network.delay_us = rng.choice(((200, 2000), (1000, 100_000), (100, 500_000)))

    def reset(self, rng: Random) -> None:
        self._count("connection reset")
        self._world.network.reset(self._link(rng))

    def stall(self, rng: Random) -> None:
        self._count("stalled link")
        self._world.network.stall(self._link(rng))

    def release(self, _: Random) -> None:
        self._world.network.release()

    # Disks and clocks

    def slow_disk(self, rng: Random) -> None:
        self._count("slow disk")
        self._any(rng).storage_thread.sync_us = rng.choice(
            (SYNC_US, (20, 100), (50_000, 400_000), (500_000, 1_500_000))
        )

    def hang_disk(self, rng: Random) -> None:
        """Let a disk hang for a while, perhaps so long that the member stops."""
        member = self._some(rng)
        if member is None:
            return
        self._count("hung disk")
        member.storage_thread.hang()
        incarnation = member.incarnation

        def answer() -> None:
            if member.is_running and member.incarnation == incarnation:
                member.storage_thread.answer()

        hang_us = rng.choice((200_000, 2_000_000, 40_000_000))
        self._world.schedule.after(rng.randrange(hang_us), f"disk of {member.id} answers", answer)

    def choke_state(self, rng: Random) -> None:
        """Let writes of the state block for a while, so that the member applies nothing."""
        member = self._some(rng)
        if member is None:
            return
        self._count("blocking state")
        machine = member.machine
        machine.is_choked = True

        def mend() -> None:
            machine.is_choked = False

        choke_us = rng.choice((200_000, 2_000_000, 40_000_000))
        self._world.schedule.after(rng.randrange(choke_us), f"state of {member.id} mended", mend)

    def fail_sync(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None:
            self._count("failed sync")
            member.disk.failing_syncs = rng.choice((1, 1 << 30))

    def fill_disk(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None:
            self._count("full disk")
            member.disk.full_part = rng.choice(("", SEGMENTS))

    def crash_in_storage(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None:
            member.storage_thread.crash_soon()

    def flip_bit(self, rng: Random) -> None:
        """Damage a file of a member; its next start refuses, or finds everything."""
        member = self._some(rng)
        if member is not None and self._world.can_lose(member):
            self._world.flipped.add(member.id)
            self.end_life(member, "bit flip", power=False, rng=rng)
            member.disk.flip_bit(rng.choice(("", ".log")))

    def lose_state(self, rng: Random) -> None:
        """Replace the state of a member by an older one or by nothing; its log and vote are whole.

        A majority of the others keeps its data, so that the member can be repaired.
        """
        member = self._some(rng)
        if member is None or not self._world.can_lose(member):
            return
        before = self._states.get(member.id, NOTHING)
        self._states[member.id] = member.machine.durable
        self.end_life(member, "lost state", power=rng.random() < 0.5, rng=rng)
        member.lose_state(before if rng.random() < 0.5 else NOTHING)

    def damage_state(self, rng: Random) -> None:
        """Damage a stored state; one kind of use finds the damage later, as the seed decides.

        The member then loses its state and is repaired. Its repair may meet further damage.
        """
        member = self._some(rng)
        if member is None or not self._world.can_lose(member):
            return
        damage = draw_damage(rng)
        member.next_damage = rng.choice([*NextDamage])
        self.inflict(member, damage, rng)

    def inflict(self, member: Member, damage: StateDamage, rng: Random) -> None:
        """Damage the state of a member, and let the chosen finder look at the damage if it can."""
        self._count(f"damage for {damage.finder.value}")
        member.damage = damage
        if damage.finder is Finder.START:
            if member.is_running:
                self.end_life(member, "kill with a damaged state", power=False, rng=rng)
        elif damage.finder is Finder.SCRUBBER:
            self._world.schedule.after(
                rng.randrange(5_000_000), f"scrub {member.id}", partial(self._scrub, member, damage)
            )

    def _scrub(self, member: Member, damage: StateDamage) -> None:
        if member.damage is damage:
            member.meets(Finder.SCRUBBER)

    def state_damage_found(self, member: Member) -> None:
        """End the process of a member whose state is damaged; its next start repairs the state."""
        if member.is_running:
            self.end_life(member, "damaged state found", power=False, rng=self._world.rng)
        member.lose_state(NOTHING)

    def fail_read(self, rng: Random) -> None:
        """Let a read of a running member fail; the member must stop, and can start again."""
        member = self._some(rng)
        if member is not None:
            self._count("failed read")
            member.disk.failing_reads = rng.choice((1, 1 << 30))

    def wipe(self, rng: Random) -> None:
        """Lose a member with all its data. A replacement is a new member."""
        member = self._some(rng)
        if member is not None and self._world.can_lose(member):
            self._count("wiped disk")
            member.stop(power=True)
            member.is_damaged = True
            self._world.network.forget(member.id)

    def change_clock_rate(self, rng: Random) -> None:
        self._count("clock rate")
        self._any(rng).rate = rng.uniform(0.5, 2.0)

    def jump_clock(self, rng: Random) -> None:
        self._count("clock jump")
        """Let one wall clock jump. At most one wall clock is wrong at a time: a minority of each
        quorum."""
        member = self._any(rng)
        others = [each for each in self._world.wrong_clocks() if each != member.id]
        if member.clocks.wrong_by_ms or others:
            for each in self._world.members.values():
                each.clocks.wrong_by_ms = 0
        else:
            member.clocks.wrong_by_ms = rng.choice((-1, 1)) * rng.choice((5_000, DAY_MS))

    # Operators

    def reconfigure(self, rng: Random) -> None:
        self._world.operator.act(rng)

    def transfer(self, rng: Random) -> None:
        leader = self._world.leader
        if leader is not None:
            self._count("transfer")
            leader.driver.transfer_leader(self._any(rng).id)

    def campaign(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None and member.driver.core.role is not RaftRole.LEADER:
            self._count("campaign")
            member.driver.campaign()

    def flush(self, rng: Random) -> None:
        member = self._some(rng)
        if member is not None:
            self._count("flush")
            member.machine.flush_durably()

    # The end

    def end(self) -> None:
        """End all faults."""
        self.planned_crashes.clear()
        self._world.network.heal()
        for member in self._world.members.values():
            member.is_paused = False
            member.rate = 1.0
            member.storage_thread.mend()
            member.machine.is_choked = False
            if member.damage is not None:
                self.state_damage_found(member)
            if member.is_running:
                member.disk.recover()
            elif not member.is_damaged:
                member.start()

    _WEIGHTS: ClassVar[dict[Callable[[Faults, Random], None], int]] = {
        kill: 4,
        lose_power: 2,
        lose_power_everywhere: 2,
        plan_crashes: 12,
        pause: 2,
        cut_off: 2,
        cut_in_two: 2,
        cut_one_way: 2,
        cut_pair: 2,
        leave_uncommitted: 20,
        lossy: 3,
        reset: 3,
        stall: 2,
        slow_disk: 2,
        hang_disk: 2,
        choke_state: 2,
        fail_sync: 2,
        fail_read: 1,
        fill_disk: 1,
        crash_in_storage: 4,
        flip_bit: 1,
        lose_state: 3,
        damage_state: 10,
        wipe: 1,
        change_clock_rate: 2,
        jump_clock: 2,
        reconfigure: 20,
        transfer: 3,
        campaign: 2,
        flush: 3,
    }
    _MENDING: ClassVar[dict[Callable[[Faults, Random], None], int]] = {mend_network: 6, release: 3}
