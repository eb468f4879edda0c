"""Simulate the founding of a cluster and nodes that join it, with faults at every step.

The founders start at about the same time, and call each other in any order. Nodes with ``join``
ask for a member id meanwhile, and a node of another cluster calls under a founder's name. Messages
are lost, repeated and late; processes are killed inside a disk operation, lose unsynced data or
their whole disk, and come back under their old name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from taskraft.v1 import cluster_service_pb2 as api
from taskraft.v1 import error_pb2
from taskraft_replication.core.types import MemberId, Message, RaftRole
from taskraft_replication.errors import DirectoryRefused, MemberRemoved
from taskraft_replication.membership.roster import removal_of
from taskraft_replication.storage.stored_member import member_in
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_service.api.cluster.member_checks import check_add_member
from taskraft_service.api.cluster.membership import addition_to, member_info
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.cluster.member_identity import (
    MemberIdentity,
    add_member_request,
    known_identity,
)
from taskraft_service.config.addresses import PeerAddress
from tests.replication.counting_machine import CountingMachine
from tests.sim.disk import Crashed, SimDisk
from tests.sim.founding_node import FoundingNode, Host, Settings
from tests.sim.founding_rules import FoundingRules
from tests.sim.schedule import Schedule
from tests.sim.violation import demand

CLUSTER = "sim"
FAULTS_US = 6_000_000
"""Duration of the faults of a run."""
QUIET_US = 60_000_000
"""Time without faults in which every node must take part and have the same history."""
ASK_US = 500_000
"""Pause between two requests to join, as ``ASK_PAUSE_SECONDS``."""
JOINERS = ("j1", "j2")
STRANGER = "stranger"
CRASHES_WITHIN = 40
"""Greatest number of disk operations until a planned crash."""
LYING_SHARE = 0.25
"""Share of the disks that lie from the start, as long as they are a minority of the founders'."""

Content = pb.Hello | tuple[bytes, Message] | api.AddMemberRequest


class Asked:
    """The ``ResultFuture`` of a membership change."""

    def __init__(self, then: Callable[[bool], None] = lambda _: None) -> None:
        self._then = then
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: object, /) -> None:
        self._is_done = True
        self._then(True)

    def set_exception(self, exception: BaseException, /) -> None:
        self._is_done = True
        self._then(False)


def address_of(member_id: int, name: str) -> PeerAddress:
    """Return a node whose name is also its host."""
    return PeerAddress(member_id, name, f"{name}:1", f"{name}:2")


class FoundingWorld:
    """One run; ``run`` raises ``Violation`` if a rule is broken."""

    def __init__(self, seed: int, founders: int | None = None, *, is_quiet: bool = False) -> None:
        """Create the nodes. A quiet world has no faults of its own."""
        self.rng = Random(f"{seed} founding")
        self.schedule = Schedule()
        self.counts: Counter[str] = Counter()
        self.rules = FoundingRules(CLUSTER)
        self.trace: Callable[[str], None] | None = None
        self.is_quiet = is_quiet
        self.loses_power: bool | None = None
        """Whether a crash also loses unsynced data; None: sometimes."""
        self.drop = self.double = 0.0
        self.delay_us = (200, 2000)
        self.cut: set[tuple[str, str]] = set()
        self._nodes: dict[str, FoundingNode] = {}
        self._refused: dict[str, Exception] = {}
        """Hosts whose process has stopped for ever, with the reason."""
        self._lost_founders: set[str] = set()
        """Founders that have lost their disk, or will lose it because the disk lies."""
        self.is_founding_broken = False
        """Whether a founder lost its disk before the cluster had a leader: then the rest may wait
        for it for ever, and the operator founds the cluster again."""
        count = self.rng.choice((1, 2, 3, 3, 3, 5)) if founders is None else founders
        members = tuple(address_of(number, f"f{number}") for number in range(1, count + 1))
        self.founders = [each.name for each in members]
        self.hosts: dict[str, Host] = {}
        for member in members:
            self._add(Settings(CLUSTER, member, members))
        for name in JOINERS:
            self._add(Settings(CLUSTER, address_of(0, name), (), is_joiner=True))
        others = members[1:] or (address_of(2, "f1"),)
        stranger = (address_of(1, STRANGER), *others)
        self._add(Settings("other", stranger[0], stranger))
        if not is_quiet:
            self._choose_lying_disks(Random(f"{seed} lies"))
        for name in self.hosts:
            self.schedule.after(self.rng.randrange(200_000), f"start {name}", self._starter(name))

    def _add(self, settings: Settings) -> None:
        disk = SimDisk(Random(f"{self.rng.random()} disk"))
        self.hosts[settings.member.name] = Host(settings, disk, CountingMachine())

    def _choose_lying_disks(self, rng: Random) -> None:
        """Let the disks of a minority of the founders lie, and perhaps that of a joining node."""
        for name in rng.sample([*self.founders, JOINERS[0]], len(self.founders) + 1):
            if rng.random() < LYING_SHARE and self._may_wipe(name):
                self.let_disk_lie(name)

    def let_disk_lie(self, name: str) -> None:
        """Let all syncs of a new disk succeed and keep nothing, until its host loses power."""
        self.hosts[name].disk.lies = True
        self._lost_founders |= {name} & {*self.founders}

    # Processes

    def _starter(self, name: str) -> Callable[[], None]:
        return lambda: self.start(name)

    def start(self, name: str) -> None:
        """Start the process of a host, unless it runs or was refused for ever."""
        if name in self._nodes or name in self._refused:
            return
        host = self.hosts[name]
        host.machine = host.machine.after_crash()
        if not self.is_quiet and self.rng.random() < 0.3:
            host.disk.crash_at = host.disk.operations + self.rng.randrange(1, CRASHES_WITHIN)
        try:
            stored = member_in(host.disk, 0, f"{self.rng.randrange(1 << 64):016x}")
            identity = known_identity(host.settings, stored)
            if identity is not None:
                self._open(host, identity)
                return
        except Crashed:
            self.crashed(name)
            return
        request = add_member_request(
            host.settings, MemberIdentity(host.settings.member, (), stored.directory_id)
        )
        request.request_id = f"{self.rng.randrange(1 << 64):016x}"
        self._ask(name, request, host.disk)

    def _open(self, host: Host, identity: MemberIdentity) -> None:
        try:
            node = FoundingNode(self, host, identity)
        except MemberRemoved as error:
            self._refused[host.name] = error
            return
        self._nodes[host.name] = node
        self.act(node, node.start)

    def node_at(self, address: str | None) -> FoundingNode | None:
        """Return the process that listens at an address."""
        return next((each for each in self._nodes.values() if each.host.address == address), None)

    def act(self, node: FoundingNode, run: Callable[[], None]) -> None:
        """Run a call in a process, which may end inside of it."""
        if not node.is_alive:
            return
        try:
            run()
        except Crashed:
            self.crashed(node.host.name)

    def crashed(self, name: str) -> None:
        """End a process; it starts again after a while."""
        self.count("crash")
        node = self._nodes.pop(name, None)
        if node is not None:
            node.end()
        if self.rng.random() < 0.5 if self.loses_power is None else self.loses_power:
            self._lose_power(self.hosts[name])
        self.hosts[name].disk.recover()
        delay_us = self.rng.choice((1000, 100_000, 1_000_000))
        self.schedule.after(delay_us, f"start {name}", self._starter(name))

    def _lose_power(self, host: Host) -> None:
        host.disk.lose_power()
        if host.disk.lies:
            self.count("power loss of a lying disk")
            self._lost_disk(host)

    def _lost_disk(self, host: Host) -> None:
        """Note that a host has lost all files of its member."""
        if host.name in self.founders:
            self._lost_founders.add(host.name)
            self.is_founding_broken = self.is_founding_broken or not self.rules.has_led
        host.machine = CountingMachine()

    def expelled(self, node: FoundingNode, error: DirectoryRefused) -> None:
        """End a process for ever."""
        self.count(type(error).__name__)
        node.end()
        self._nodes.pop(node.host.name, None)
        self._refused[node.host.name] = error

    def wipe(self, name: str) -> None:
        """Replace the disk of a host by an empty one; the node comes back under its old name."""
        self.count("wipe")
        node = self._nodes.pop(name, None)
        if node is not None:
            node.end()
        host = self.hosts[name]
        self._lost_disk(host)
        host.disk = SimDisk(Random(f"{self.rng.random()} disk"))
        self.schedule.after(self.rng.randrange(500_000), f"start {name}", self._starter(name))

    # Network

    def count(self, name: str) -> None:
        self.counts[name] += 1
        if self.trace is not None:
            self.trace(f"{self.schedule.now_us:>10} *** {name}")

    def send(self, sender: FoundingNode, address: str, content: pb.Hello | tuple[bytes, Message]):
        """Carry a message to the process that listens at ``address`` when it arrives."""

        def arrive() -> None:
            node = self.node_at(address)
            if node is None:
                return
            if isinstance(content, pb.Hello):
                self.act(node, lambda: node.receive_hello(content, sender))
            else:
                self.act(node, lambda: node.receive_frame(*content, sender))

        self._carry(sender.host.name, address.partition(":")[0], arrive)

    def reply(self, sender: FoundingNode, to: FoundingNode, arrive: Callable[[], None]) -> None:
        """Carry an answer to the process that has called."""
        self._carry(sender.host.name, to.host.name, lambda: self.act(to, arrive))

    def _carry(self, sender: str, to: str, arrive: Callable[[], None]) -> None:
        if (sender, to) in self.cut:
            return
        copies = (self.rng.random() >= self.drop) + (self.rng.random() < self.double)
        for _ in range(copies):
            self.schedule.after(self.rng.randint(*self.delay_us), f"{sender}->{to}", arrive)

    # Joining

    def _ask(self, name: str, request: api.AddMemberRequest, disk: SimDisk) -> None:
        """Ask a founder for a member id until one answers, as ``resolve_member_identity``."""
        is_answered = False

        def is_over() -> bool:
            host = self.hosts[name]
            return is_answered or name in self._nodes or host.disk is not disk

        def answered(member_id: int) -> None:
            nonlocal is_answered
            if is_over():
                return
            is_answered = True
            host = self.hosts[name]
            own = MemberIdentity(
                PeerAddress(member_id, name, request.peer_address, request.address),
                (),
                request.directory_id,
            )
            try:
                self._open(host, own)
            except Crashed:
                self.crashed(name)

        def refused(error: CallRefused) -> None:
            if not is_over():
                self.count(f"join: {error_pb2.Error.Reason.Name(error.reason)}")
                self._refused[name] = error

        def attempt() -> None:
            if is_over() or name in self._refused:
                return
            to = self.rng.choice([*self.founders])
            self._carry(name, to, lambda: self._asked(name, to, request, answered, refused))
            self.schedule.after(ASK_US, f"{name} asks", attempt)

        attempt()

    def _asked(
        self,
        name: str,
        to: str,
        request: api.AddMemberRequest,
        answered: Callable[[int], None],
        refused: Callable[[CallRefused], None],
    ) -> None:
        """Handle a request to join at a node, which forwards it to the leader."""
        node = self._nodes.get(to)
        if node is None or not node.is_running:
            return
        members = [each for each in self._nodes.values() if each.host.name != STRANGER]
        leader = next((each for each in members if each.id == node.driver.core.leader), None)
        if leader is None or leader.driver.core.role is not RaftRole.LEADER:
            return
        via = leader.host.name
        try:
            check_add_member(request, leader.config.cluster_id)
            roster = leader.driver.membership.roster
            key = f"add {request.name} {request.request_id}"
            member, change = addition_to(roster, member_info(request), key)
        except CallRefused as error:
            self._carry(via, name, lambda refusal=error: refused(refusal))
            return
        if change is None:
            self._carry(via, name, lambda: answered(member))
            return

        def changed(ok: bool) -> None:
            if ok:
                self._carry(via, name, lambda: answered(member))

        self.act(leader, lambda: leader.driver.propose_change(change, Asked(changed)))

    # Runs

    @property
    def leader(self) -> FoundingNode | None:
        leaders = [
            each
            for each in self._nodes.values()
            if each.is_running and each.driver.core.role is RaftRole.LEADER
        ]
        return max(leaders, key=lambda each: each.driver.core.term, default=None)

    def step(self) -> None:
        """Execute the next event."""
        event = self.schedule.next()
        if self.trace is not None:
            self.trace(f"{self.schedule.now_us:>10} {event.name}")
        event.run()

    def run(self) -> None:
        """Run with faults, then without faults; require that each node takes part at the end."""
        self.schedule.after(self.rng.randrange(200_000), "fault", self._strike)
        while self.schedule.now_us < FAULTS_US:
            self.step()
        self.settle()

    def _strike(self) -> None:
        if self.is_quiet:
            return
        rng = self.rng
        name = rng.choice([*self.hosts])
        match rng.choice(("kill", "kill", "crash", "crash", "net", "cut", "heal", "wipe", "put")):
            case "kill" if name in self._nodes:
                self.crashed(name)
            case "crash":
                disk = self.hosts[name].disk
                disk.crash_at = disk.operations + rng.randrange(1, CRASHES_WITHIN)
            case "net":
                self.drop, self.double = rng.choice((0.0, 0.3)), rng.choice((0.0, 0.3))
                self.delay_us = rng.choice(((200, 2000), (1000, 300_000)))
            case "cut":
                others = rng.sample([*self.hosts], 2)
                self.cut |= {(name, each) for each in others} | {(each, name) for each in others}
            case "heal":
                self._heal()
            case "wipe" if self._may_wipe(name):
                self.wipe(name)
            case "put" if (leader := self.leader) is not None:
                self.act(leader, lambda: leader.driver.propose(b"%d" % rng.randrange(99), Asked()))
            case _:
                pass
        self.schedule.after(rng.randrange(400_000), "fault", self._strike)

    def _may_wipe(self, name: str) -> bool:
        """Return whether the rest of the founders is a majority without this one."""
        lost = self._lost_founders | ({name} & {*self.founders})
        return 2 * len(lost) < len(self.founders)

    def _heal(self) -> None:
        self.drop = self.double = 0.0
        self.delay_us = (200, 2000)
        self.cut.clear()

    def settle(self) -> None:
        """End all faults; require that every node of the cluster takes part, with one history."""
        self.is_quiet = True
        self._heal()
        for host in self.hosts.values():
            host.disk.recover()
        deadline = self.schedule.now_us + QUIET_US
        asked_at = 0
        while not self._is_settled():
            if self.schedule.now_us >= asked_at:
                asked_at = self.schedule.now_us + 500_000
                self._operate()
            self.step()
            if self.schedule.now_us >= deadline:
                demand(
                    self.is_founding_broken,
                    f"not every node takes part after the faults: {self._refused}",
                )
                self.count("founding given up")
                return

    def _operate(self) -> None:
        """Act as an operator: remove a node that was refused, and let it join again, empty."""
        leader = self.leader
        if leader is None:
            return
        roster = leader.driver.membership.roster
        for name in [*self._refused]:
            known = next((each for each in roster.members if each.name == name), None)
            if known is not None:
                change = removal_of([known.member], f"remove {known.member}")
                self.act(leader, lambda c=change: leader.driver.propose_change(c, Asked()))
                return
            if name == STRANGER:
                continue
            del self._refused[name]
            host = self.hosts[name]
            settings = Settings(CLUSTER, address_of(0, name), (), is_joiner=True)
            self.hosts[name] = Host(settings, host.disk, host.machine)
            self.wipe(name)
        self.act(leader, lambda: leader.driver.propose(b"end", Asked()))

    def _is_settled(self) -> bool:
        leader = self.leader
        if leader is None:
            return False
        names = {each.name for each in leader.driver.membership.roster.members}
        demand(STRANGER not in names, "a node of another cluster is a member")
        wanted = {*self.hosts} - {STRANGER}
        nodes = [node for node in self._nodes.values() if node.host.name in wanted]
        return (
            names == wanted
            and len(nodes) == len(wanted)
            and all(each.is_running for each in nodes)
            and {each.id for each in nodes}
            == {MemberId(each.member) for each in leader.driver.membership.roster.members}
            and len({each.host.machine.applied_index for each in nodes}) == 1
            and leader.host.machine.lines[-1:] == [b"end"]
        )
