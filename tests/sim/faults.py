"""Let things break at random, and mend them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replication.core.types import MemberId, RaftRole

if TYPE_CHECKING:
    from tests.sim.member import Member
    from tests.sim.world import World


class Faults:
    """Strikes now and then. A majority stays undamaged, else nothing could be demanded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._is_over = False
        self._is_bit_flipped = False
        self._gap_us = self._rng.choice((200_000, 1_000_000, 4_000_000))
        """Longest time between two faults: some runs are storms, others have long calms."""
        self._kinds: tuple[Callable[[], None], ...] = (
            self.kill,
            self.kill,
            self.lose_power,
            self.lose_power_everywhere,
            self.cut_off,
            self.cut_one_way,
            self.cut_pair,
            self.mend_network,
            self.mend_network,
            self.lossy,
            self.reset,
            self.stall,
            self.release,
            self.pause,
            self.slow_disk,
            self.fail_sync,
            self.crash_in_storage,
            self.flip_bit,
            self.other_clock,
            self.transfer,
            self.campaign,
            self.flush,
        )

    def plan(self) -> None:
        """Let the next fault come."""
        if not self._is_over:
            self._world.schedule.after(
                self._rng.randrange(1000, self._gap_us), "fault", self._strike
            )

    def _strike(self) -> None:
        if self._is_over:
            return
        kind = self._rng.choice(self._kinds)
        kind()
        self.plan()

    def _count(self, name: str) -> None:
        self._world.counts[f"fault: {name}"] += 1
        if self._world.trace is not None:
            self._world.trace(f"{'':>10} *** {name}")

    def _some(self) -> Member | None:
        running = self._world.running
        return self._rng.choice(running) if running else None

    def _link(self) -> tuple[MemberId, MemberId]:
        one, other = self._rng.sample([*self._world.members], 2)
        return one, other

    # Processes

    def end_life(self, member: Member, name: str, *, power: bool) -> None:
        """End a process; start it again after a while."""
        self._count(f"{name} {member.id}" if self._world.trace else name)
        member.stop(power=power)
        self._world.network.forget(member.id)
        self._world.schedule.after(
            self._rng.choice((1000, 100_000, 1_000_000)),
            f"start {member.id}",
            self._starter(member),
        )

    def _starter(self, member: Member) -> Callable[[], None]:
        def start() -> None:
            if not member.is_running and not member.is_damaged:
                member.start()

        return start

    def ended(self, member: Member, why: str) -> None:
        """Take the news that a member stopped by itself, as it must when its disk fails."""
        if member.is_damaged:
            assert self._is_bit_flipped, f"{member.id} found damage where none was done: {why}"
            self._count("damage found")
            return
        self.end_life(member, "stopped by itself", power=self._rng.random() < 0.5)

    def kill(self) -> None:
        member = self._some()
        if member is not None:
            self.end_life(member, "kill", power=False)

    def lose_power(self) -> None:
        member = self._some()
        if member is not None:
            self.end_life(member, "power loss", power=True)

    def lose_power_everywhere(self) -> None:
        for member in self._world.running:
            self.end_life(member, "power loss of all", power=True)

    def pause(self) -> None:
        member = self._some()
        if member is None:
            return
        self._count("pause")
        member.is_paused = True

        def resume() -> None:
            member.is_paused = False

        self._world.schedule.after(self._rng.randrange(1_500_000), f"resume {member.id}", resume)

    # Network

    def cut_off(self) -> None:
        self._count("cut off")
        lonely = self._rng.choice([*self._world.members])
        for other in self._world.members:
            self._world.network.cut |= {(lonely, other), (other, lonely)}

    def cut_one_way(self) -> None:
        self._count("one-way cut")
        self._world.network.cut.add(self._link())

    def cut_pair(self) -> None:
        self._count("cut between two")
        one, other = self._link()
        self._world.network.cut |= {(one, other), (other, one)}

    def mend_network(self) -> None:
        self._world.network.heal()

    def lossy(self) -> None:
        self._count("bad network")
        network = self._world.network
        network.drop = self._rng.choice((0.0, 0.02, 0.3))
        network.double = self._rng.choice((0.0, 0.1))
        network.reorder = self._rng.choice((0.0, 0.2))
        network.delay_us = self._rng.choice(((200, 2000), (1000, 100_000), (100, 500_000)))

    def reset(self) -> None:
        self._count("connection reset")
        self._world.network.reset(self._link())

    def stall(self) -> None:
        self._count("stalled link")
        self._world.network.stall(self._link())

    def release(self) -> None:
        self._world.network.release()

    # Disks and clocks

    def slow_disk(self) -> None:
        member = self._rng.choice([*self._world.members.values()])
        self._count("slow disk")
        member.sync_us = self._rng.choice(((100, 3000), (20, 100), (50_000, 400_000)))

    def fail_sync(self) -> None:
        member = self._some()
        if member is not None:
            self._count("failed sync")
            member.disk.sync_fails = True

    def crash_in_storage(self) -> None:
        member = self._some()
        if member is not None and member.crash_in_work():
            self.end_life(member, "crash inside a write", power=self._rng.random() < 0.7)

    def flip_bit(self) -> None:
        """Damage one member's log for good, while it is down; only one, and only now and then."""
        member = self._some()
        if self._is_bit_flipped or member is None or self._rng.random() < 0.8:
            return
        self._is_bit_flipped = True
        self.end_life(member, "bit flip", power=False)
        member.disk.flip_bit(".log")

    def other_clock(self) -> None:
        self._count("clock rate")
        self._rng.choice([*self._world.members.values()]).rate = self._rng.uniform(0.5, 2.0)

    # Operators

    def transfer(self) -> None:
        leader = self._world.leader
        if leader is not None:
            self._count("transfer")
            leader.driver.transfer_leader(self._rng.choice([*self._world.members]))

    def campaign(self) -> None:
        member = self._some()
        if member is not None and member.driver.core.role is not RaftRole.LEADER:
            self._count("campaign")
            member.driver.campaign()

    def flush(self) -> None:
        member = self._some()
        if member is not None:
            self._count("flush")
            member.machine.flush_durably()

    # The end

    def end(self) -> None:
        """Mend everything and break nothing any more."""
        self._is_over = True
        self._world.network.heal()
        for member in self._world.members.values():
            member.is_paused = False
            member.rate = 1.0
            member.sync_us = (100, 3000)
            if member.is_running:
                member.disk.recover()
            elif not member.is_damaged:
                member.start()
