"""Simulate one run: members, network, faults and clients, all derived from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random

from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    Message,
    RaftRole,
)
from taskraft_replication.driver.disk_watch import DiskPolicy
from taskraft_replication.membership.roster import roster_of
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.queue import Queue
from tests.sim.decisions import Decision, decisions_of
from tests.sim.faults import Faults
from tests.sim.invariants import Invariants
from tests.sim.member import TICK_US, Member
from tests.sim.network import Activity, Content, Link, Network
from tests.sim.operator import Operator
from tests.sim.pieces import Piece
from tests.sim.planned_crashes import Moment
from tests.sim.run_profile import draw_profile
from tests.sim.schedule import Schedule
from tests.sim.state_damage import Finder, StateDamage
from tests.sim.violation import demand
from tests.sim.workload import TUBE, Answer, Call, Workload

ELECTION_TICKS = 7
QUIET_ELECTIONS = 16
"""Maximum number of election timeouts without faults until the group makes progress again."""

SIZES = (3, 3, 3, 3, 5, 5, 4, 2, 1)
"""Possible numbers of members at the start of a run; a run draws one of these numbers."""

AGAIN_SHARE = 0.3
"""Share of the runs that also lose the power of all members at the end."""

COMPARE_PERIOD = 500
"""Number of steps after which whole logs are compared."""


def tasks_in(queue: Queue) -> dict[int, bytes]:
    """Return all tasks of a queue, with their payloads."""
    found: list[TaskView] = queue.list_tasks(TUBE, (), 0, 1 << 30)
    return {task.id: task.body for task in found}


class Read:
    """The ``ResultFuture`` of a client's linearizable read."""

    def __init__(self, world: World, member: Member) -> None:
        self._world = world
        self._member = member
        self._asked_at = world.invariants.commit_max
        self._is_done = False
        world.workload.awaited.append(self)

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: LogIndex, /) -> None:
        self._is_done = True
        if self._member.meets(Finder.CALL):
            self._world.counts["client: read refused: the state is damaged"] += 1
            return
        self._world.counts["client: reads"] += 1
        self._world.invariants.read(self._asked_at, result)
        demand(self._member.machine.applied_index >= result, "a read was released too early")
        self._check_value()

    def _check_value(self) -> None:
        """Demand that the tasks that the member shows are those of the model at its index."""
        history, machine = self._world.invariants.history, self._member.machine
        if history.changes:
            expected = history.living_at(machine.applied_index)
            demand(tasks_in(machine.queue) == expected, "a read shows other tasks than were put")

    def set_exception(self, exception: BaseException, /) -> None:
        self._is_done = True
        self._world.counts[f"client: {type(exception).__name__}"] += 1


class World:
    """One run. ``step`` executes one event; the invariants are checked after each event."""

    def __init__(
        self,
        seed: int,
        members: int | None = None,
        *,
        is_scripted: bool = False,
        chosen: Collection[int] | None = None,
    ) -> None:
        """Create the members. A scripted world has no faults and no client calls of its own.

        ``chosen`` are the numbers of the decisions to follow; None means all.
        """
        self.rng = Random(f"{seed} world")
        self.schedule = Schedule()
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.decided = 0
        """Number of decisions so far, with those that were left out."""
        self.trace: Callable[[str], None] | None = None
        self.network = Network(self.schedule, Random(f"{seed} network"), self._deliver, self._lost)
        self.members: dict[MemberId, Member] = {}
        self.flipped: set[MemberId] = set()
        """Members whose data was damaged on purpose."""
        self.wrong_epochs: set[int] = set()
        """Epochs of the cluster time that wrong wall clocks alone could start."""
        self.late_epochs: set[int] = set()
        """Epochs that began with the lowest of wall clocks that disagreed."""
        self.invariants = Invariants(self.members)
        self.profile = draw_profile(Random(f"{seed} habits"))
        if is_scripted:
            self.profile = replace(self.profile, disk=DiskPolicy(), long_share=0.0)
        self.workload = Workload(self.counts, self.invariants, self.profile.idle_share)
        self.faults = Faults(self, Random(f"{seed} faults"))
        self.operator = Operator(self)
        self._seed = seed
        self._is_scripted = is_scripted
        self._data_count = 0
        self.is_over = False
        self._chosen = chosen
        self._decisions = decisions_of(seed)
        founders = self.rng.choice(SIZES) if members is None else members
        self._newcomers_left = self.profile.newcomers_max
        ids = tuple(MemberId(number) for number in range(1, founders + 1))
        roster = roster_of(MemberInfo(member) for member in ids)
        founded = ConfState(voters=ids, roster=roster)
        self.invariants.found(founded)
        for member in ids:
            self._add(member, founded)
        if not is_scripted:
            self._decide()

    def _add(self, member: MemberId, founders: ConfState) -> None:
        message_bytes_max = self.rng.choice((100, 2000, 1 << 20))
        config = RaftConfig(
            member,
            votes_show_activity=True,
            election_ticks=ELECTION_TICKS,
            heartbeat_ticks=2,
            message_bytes_max=message_bytes_max,
            inflight_messages_max=self.rng.choice((2, 16, 256)),
            inflight_bytes_max=max(message_bytes_max, self.rng.choice((300, 16 << 20))),
            committed_bytes_max=self.rng.choice((200, 1 << 20)),
            uncommitted_bytes_max=self.rng.choice((1000, 1 << 20)),
        )
        rng = Random(f"{self._seed} member {member}")
        self.members[member] = Member(member, self, config, rng, founders)
        if self._is_scripted:
            self.members[member].clocks.skew_ms = 0
        self.members[member].start()

    # State

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_running]

    @property
    def leader(self) -> Member | None:
        """The leader of the highest term, if a member leads."""
        leaders = [each for each in self.running if each.driver.core.role is RaftRole.LEADER]
        return max(leaders, key=lambda each: each.driver.core.term, default=None)

    def has_majority(self, configuration: ConfState, but: Member | None = None) -> bool:
        """Return whether a majority of ``configuration`` has its data, also without member ``but``.

        A member with a damaged log counts as lost, even before the member detects the damage. So
        does a member without its state, which waits for the state of another member.
        """
        whole = {
            each.id: not each.is_damaged
            and not each.has_lost_state
            and each.damage is None
            and each.id not in self.flipped
            and each is not but
            for each in self.members.values()
        }
        return joint_vote(configuration, whole) is VoteResult.WON

    def has_pending_changes(self) -> bool:
        """Return whether the membership may change because a member has not applied everything."""
        whole = [each for each in self.members.values() if not each.is_damaged]
        return any(
            not each.is_running
            or each.uncommitted_changes()
            or each.machine.applied_index < each.driver.core.commit_index
            for each in whole
        )

    def can_damage_sender(self, member: Member, sender: Member) -> bool:
        """Return whether a third voter can repair ``member``, also if ``sender`` is damaged.

        Only the states are damaged. The logs of both members are whole, so no majority of whole
        states is needed.
        """
        needed = max(each.view.first_index() - 1 for each in (member, sender) if each.has_lived)
        voters = set[MemberId].intersection(*(set(m.configuration.voters) for m in self.running))
        return not self.is_over and any(
            each.machine.durable_index >= needed
            and each.damage is None
            and not each.is_damaged
            and not each.has_lost_state
            and each.id in voters - self.flipped
            for each in self.members.values()
            if each not in (member, sender)
        )

    def can_lose(self, member: Member) -> bool:
        """Return whether the group survives the loss of ``member``."""
        return not self.has_pending_changes() and all(
            self.has_majority(each.configuration, member) for each in self.running
        )

    # Events

    def count(self, name: str) -> None:
        self.counts[name] += 1
        self.note(name)

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{'':>10} *** {text}")

    def join(self) -> MemberId | None:
        """Start a member that the group does not know; return None at the limit of new members."""
        if not self._newcomers_left:
            return None
        self._newcomers_left -= 1
        newcomer = MemberId(max(self.members) + 1)
        self._add(newcomer, ConfState())
        return newcomer

    def step(self) -> None:
        """Execute the next event."""
        event = self.schedule.next()
        self.steps += 1
        if self.trace is not None:
            self.trace(f"{self.schedule.now_us:>10} {event.name}")
        event.run()
        if self.steps % COMPARE_PERIOD == 0:
            self.invariants.compare_logs()

    def run(self, steps: int) -> None:
        """Run with faults, then without, and check that the group recovers."""
        for _ in range(steps):
            self.step()
        self.settle()

    def _decide(self) -> None:
        decision = next(self._decisions)

        def happen() -> None:
            if self.is_over:
                return
            self.decided = decision.number + 1
            if self._chosen is None or decision.number in self._chosen:
                self._follow(decision)
            self._decide()

        name = f"decision {decision.number}"
        self.schedule.after(decision.gap_us, name, happen)

    def _follow(self, decision: Decision) -> None:
        rng = decision.rng
        if decision.is_fault:
            self.faults.strike(rng)
            return
        leader = self.leader
        running = [each for each in self.running if not each.is_paused]
        if not running:
            return
        if leader is not None and not leader.is_paused and rng.random() < 0.9:
            member = leader
        else:
            member = rng.choice(running)
        if rng.random() < 0.15:
            member.driver.read_index(Read(self, member))
        else:
            self.workload.call(member, rng)

    # The end of a run

    def settle(self) -> None:
        """End all faults; demand that the group recovers, in some runs twice.

        Removed members are shut down before the second recovery, as an operator may do.
        """
        self.note("settle")
        self.is_over = True
        self._recover()
        if not self._is_scripted and self.rng.random() < AGAIN_SHARE:
            self.operator.take_all_away()
            for member in self.running:
                member.stop(power=True)
            self.note("all start again")
            self._recover()

    def _recover(self) -> None:
        """Demand a leader, a commit, and equal states within some election timeouts.

        The clients stop once a new entry is applied. A member that receives a few entries a message
        could otherwise follow the log forever without reaching its end.
        """
        self.faults.end()
        before = self.invariants.commit_max
        asked = [each for each in self.workload.awaited if not each.done()]
        deadline = self.schedule.now_us + QUIET_ELECTIONS * 2 * ELECTION_TICKS * TICK_US
        asked_at = 0
        while not (self._is_settled(before) and all(each.done() for each in asked)):
            leader = self.leader
            now_us = self.schedule.now_us
            if leader is not None and leader.machine.applied_index <= before and now_us > asked_at:
                asked_at = now_us + 10_000
                self.workload.call(leader, self.rng)
            self.step()
            demand(
                self.schedule.now_us < deadline,
                f"no progress {QUIET_ELECTIONS} election timeouts after the last fault",
            )
        self.invariants.compare_logs()
        self._check_queues()

    def _is_settled(self, before: LogIndex) -> bool:
        leader = self.leader
        if leader is None or self.steps % 20:
            return False
        whole = self._reachable(leader)
        return (
            leader.serves
            and leader.machine.applied_index > before
            and all(each.is_running for each in whole)
            and len({each.machine.applied_index for each in whole}) == 1
        )

    def _reachable(self, leader: Member) -> list[Member]:
        """Return the members that receive the leader's log."""
        return [
            self.members[peer]
            for peer in leader.driver.core._member.tracker.progress
            if not self.members[peer].is_damaged
        ]

    def _check_queues(self) -> None:
        """Demand that nothing acknowledged is lost, and that all replicas are equal."""
        leader = self.leader
        assert leader is not None
        queues = [each.machine.queue for each in self._reachable(leader)]
        demand(len({each.digest() for each in queues}) == 1, "replicas differ in the end")
        demand(
            tasks_in(queues[0]) == self.invariants.history.tasks,
            "the remaining tasks differ from the tasks that were put and not finished",
        )

    # Scripts

    def until(self, condition: Callable[[], bool]) -> None:
        """Execute events until ``condition`` holds, for at most one minute of virtual time."""
        deadline = self.schedule.now_us + 60_000_000
        while not condition():
            self.step()
            demand(self.schedule.now_us < deadline, "the expected condition did not occur")

    def until_done(self, proposals: Collection[Answer]) -> None:
        """Execute events until each proposal has its outcome."""
        self.until(lambda: all(each.done() for each in proposals))

    def elapse(self, milliseconds: int) -> None:
        """Execute events for some virtual time."""
        deadline = self.schedule.now_us + 1000 * milliseconds
        self.schedule.after(1000 * milliseconds, "elapse", lambda: None)
        while self.schedule.now_us < deadline:
            self.step()

    def elect(self) -> Member:
        """Wait for a leader whose first entry all reachable members have applied."""
        self.until(lambda: self.leader is not None and self.leader.machine.applied_index > 1)
        assert self.leader is not None
        return self.leader

    def propose(self, member: Member, count: int) -> list[Answer]:
        """Propose ``count`` entries at ``member``, one at a time."""
        proposals = []
        for _ in range(count):
            self._data_count += 1
            committed = self.invariants.commit_max
            proposals.append(Answer(self.workload, Call(()), committed))
            member.driver.propose(b"script %d" % self._data_count, proposals[-1])
            member.driver.pump()
        return proposals

    # Interface of the members

    def wrong_clocks(self) -> list[MemberId]:
        """Return the members whose wall clocks are wrong."""
        return [each.id for each in self.members.values() if each.clocks.wrong_by_ms]

    def peers_of(self, member: Member) -> list[Member]:
        """Return the running members that a member reaches, in random order."""
        cut = self.network.cut
        peers = [
            each
            for each in self.running
            if each is not member
            and not each.is_paused
            and (each.id, member.id) not in cut
            and (member.id, each.id) not in cut
        ]
        return self.rng.sample(peers, len(peers))

    def send(self, to: MemberId, frame: Content, sender: Member) -> None:
        self.network.send((sender.id, to), frame, sender.incarnation)

    def _deliver(self, link: Link, frame: Content, incarnation: int) -> None:
        member = self.members[link[1]]
        if not member.is_running:
            return
        if isinstance(frame, Activity):
            self.counts[str(frame)] += 1
            member.act(lambda: member.receive_activity(link[0], frame, incarnation))
        else:
            member.act(lambda: member.receive(frame, incarnation))

    def _lost(self, sender: MemberId, to: MemberId) -> None:
        """Tell a sender after a delay that frames were lost, as a broken stream does."""

        def tell() -> None:
            member = self.members[sender]
            if member.is_running:
                member.lost(to)

        self.schedule.after(self.rng.randrange(10_000), f"{sender} misses {to}", tell)

    def send_snapshot(
        self, message: Message, pieces: list[Piece], done: Callable[[bool], None]
    ) -> None:
        self.counts["snapshots"] += 1
        link = (message.sender, message.to)

        def arrive() -> None:
            member = self.members[message.to]
            broken = link in self.network.cut or self.rng.random() < self.network.drop
            if broken or not member.is_running or member.is_paused:
                done(False)
            else:
                if self.rng.random() < self.network.drop:
                    offset, data, crc = pieces[0]
                    pieces[0] = (offset, data[:-1] + b"?", crc)
                member.receive_snapshot(message, pieces, done)

        delay_us = self.rng.randrange(1000, self.rng.choice((50_000, 50_000, 4_000_000)))
        self.schedule.after(delay_us, f"snapshot to {message.to}", arrive)

    def on_rare_event(self, member: Member, moment: Moment) -> None:
        """Report a rare event."""
        if not self.is_over:
            self.faults.planned_crashes.on_rare_event(member, moment)

    def ended(self, member: Member, why: str) -> None:
        """Report that a member stopped by itself."""
        self.faults.ended(member, why)

    def state_damage_found(self, member: Member) -> None:
        """Report that a member has found damage of its state."""
        self.faults.state_damage_found(member)

    def damage_again(self, member: Member, damage: StateDamage, rng: Random) -> None:
        """Damage the state that a repair has installed."""
        self.faults.inflict(member, damage, rng)

    def crashed(self, member: Member) -> None:
        """Report that a member stopped in the middle of a write, as planned."""
        power = self.rng.random() < 0.7
        self.faults.end_life(member, "crash inside a write", power=power, rng=self.rng)
