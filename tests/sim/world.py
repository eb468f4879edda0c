"""The simulated world: members, network, faults and clients, all from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from replication.core.config import Config
from replication.core.types import LogIndex, MemberId, Message, RaftRole
from tests.sim.faults import Faults
from tests.sim.invariants import Invariants, demand
from tests.sim.member import TICK_US, Member, Piece
from tests.sim.network import Network
from tests.sim.schedule import Schedule

ELECTION_TICKS = 7
QUIET_ELECTIONS = 12
"""Election timeouts without faults within which the group must make progress again."""


class Proposal:
    """An ``Outcome`` of a client's proposal, checked when it comes."""

    def __init__(self, world: World, data: bytes) -> None:
        self._world = world
        self._data = data
        self._is_done = False
        self.error: BaseException | None = None
        """Why there is no result."""

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: object, /) -> None:
        self._is_done = True
        self._world.acknowledge(self._data, result)

    def set_exception(self, exception: BaseException, /) -> None:
        self._is_done = True
        self.error = exception
        self._world.counts[f"client: {type(exception).__name__}"] += 1


class Read:
    """An ``Outcome`` of a client's linearizable read."""

    def __init__(self, world: World, member: Member) -> None:
        self._world = world
        self._member = member
        self._asked_at = world.invariants.commit_max
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: LogIndex, /) -> None:
        self._is_done = True
        self._world.counts["client: reads"] += 1
        self._world.invariants.read(self._asked_at, result)
        demand(self._member.machine.applied_index >= result, "a read was released too early")

    def set_exception(self, exception: BaseException, /) -> None:
        self._is_done = True
        self._world.counts[f"client: {type(exception).__name__}"] += 1


class World:
    """One run. ``step`` lets one thing happen; invariants are checked each time."""

    def __init__(self, seed: int, members: int = 3, *, is_scripted: bool = False) -> None:
        """Make the world; in a scripted one nothing breaks and nobody asks by itself."""
        self.rng = Random(seed)
        self.schedule = Schedule()
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.trace: Callable[[str], None] | None = None
        self.network = Network(self.schedule, self.rng, self._deliver, self._lost)
        self.members: dict[MemberId, Member] = {}
        self.invariants = Invariants(self.members)
        self._data_count = 0
        for number in range(1, members + 1):
            member = MemberId(number)
            config = Config(
                member,
                election_ticks=ELECTION_TICKS,
                heartbeat_ticks=2,
                message_bytes_max=self.rng.choice((100, 2000, 1 << 20)),
                inflight_messages_max=self.rng.choice((2, 16, 256)),
                committed_bytes_max=self.rng.choice((200, 1 << 20)),
            )
            self.members[member] = Member(member, self, config, Random(self.rng.random()), members)
        for each in self.members.values():
            each.start()
        self.faults = Faults(self)
        self._is_scripted = is_scripted
        if not is_scripted:
            self.faults.plan()
            self._client()

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_running]

    @property
    def leader(self) -> Member | None:
        """The leader of the highest term, if a member leads."""
        leaders = [each for each in self.running if each.driver.core.role is RaftRole.LEADER]
        return max(leaders, key=lambda each: each.driver.core.term, default=None)

    def step(self) -> None:
        """Let the next event happen."""
        event = self.schedule.next()
        self.steps += 1
        if self.trace is not None:
            self.trace(f"{self.schedule.now_us:>10} {event.name}")
        event.run()

    def run(self, steps: int) -> None:
        """Run with faults, then without, and look whether the group recovers."""
        for _ in range(steps):
            self.step()
        self.settle()

    def settle(self) -> None:
        """End all faults; demand a leader, a commit, and equal states within some elections."""
        self.faults.end()
        if self._is_scripted:
            self._client()
        before = self.invariants.commit_max
        deadline = self.schedule.now_us + QUIET_ELECTIONS * 2 * ELECTION_TICKS * TICK_US
        while not self._is_settled(before):
            self.step()
            demand(
                self.schedule.now_us < deadline,
                f"no progress {QUIET_ELECTIONS} election timeouts after the last fault",
            )

    def _is_settled(self, before: LogIndex) -> bool:
        leader = self.leader
        if leader is None or self.steps % 20:
            return False
        whole = [each for each in self.members.values() if not each.is_damaged]
        last = leader.driver.core.last_index
        return (
            last > before
            and all(each.is_running for each in whole)
            and all(each.machine.applied_index >= before for each in whole)
            and len({each.machine.applied_index for each in whole}) == 1
        )

    # Scripts

    def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until ``condition`` holds, within a minute of virtual time."""
        deadline = self.schedule.now_us + 60_000_000
        while not condition():
            self.step()
            demand(self.schedule.now_us < deadline, "what was expected did not happen")

    def elapse(self, milliseconds: int) -> None:
        """Let some virtual time pass."""
        deadline = self.schedule.now_us + 1000 * milliseconds
        self.schedule.after(1000 * milliseconds, "elapse", lambda: None)
        while self.schedule.now_us < deadline:
            self.step()

    def elect(self) -> Member:
        """Wait for a leader whose first entry everybody within reach has applied."""
        self.until(lambda: self.leader is not None and self.leader.machine.applied_index > 1)
        assert self.leader is not None
        return self.leader

    def propose(self, member: Member, count: int) -> list[Proposal]:
        """Propose ``count`` entries at ``member``, one at a time."""
        proposals = []
        for _ in range(count):
            self._data_count += 1
            proposals.append(Proposal(self, b"%d" % self._data_count))
            member.driver.propose(b"%d" % self._data_count, proposals[-1])
            member.driver.pump()
        return proposals

    # Clients

    def _client(self) -> None:
        """Propose or read somewhere, mostly at the leader."""
        self.schedule.after(self.rng.randrange(500, 20_000), "client", self._client)
        running = self.running
        if not running:
            return
        leader = self.leader
        member = (
            leader if leader is not None and self.rng.random() < 0.9 else self.rng.choice(running)
        )
        if member.is_paused:
            return
        if self.rng.random() < 0.15:
            member.driver.read_index(Read(self, member))
            return
        for _ in range(self.rng.choice((1, 1, 1, 5, 20))):
            self._data_count += 1
            data = b"%d" % self._data_count
            if self.rng.random() < 0.1:
                data += bytes(self.rng.randrange(600))
            self.counts["client: proposals"] += 1
            member.driver.propose(data, Proposal(self, data))

    def acknowledge(self, data: bytes, digest: object) -> None:
        """Take the news that an entry was applied."""
        assert isinstance(digest, bytes)
        self.counts["client: acknowledged"] += 1
        self.invariants.acknowledged(data, digest)

    # What members need

    def send(self, message: Message, incarnation: int) -> None:
        self.network.send(message, incarnation)

    def _deliver(self, message: Message, incarnation: int) -> None:
        member = self.members[message.to]
        member.receive(message, incarnation)
        if member.is_running:
            self.invariants.check(member)

    def _lost(self, sender: MemberId, to: MemberId) -> None:
        """Tell a sender later that something was lost, as a stream does that breaks."""

        def tell() -> None:
            member = self.members[sender]
            if member.is_running:
                member.driver.unreachable(to)

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

        self.schedule.after(self.rng.randrange(1000, 50_000), f"snapshot to {message.to}", arrive)

    def ended(self, member: Member, why: str) -> None:
        """Take the news that a member ended by itself."""
        self.faults.ended(member, why)
