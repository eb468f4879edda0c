"""Run the members of a group in one process, with real files and real gRPC on loopback."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from taskraft_replication.core.types import (
    ConfState,
    LogIndex,
    MemberId,
    MemberInfo,
    RaftRole,
    SoftState,
    Term,
)
from taskraft_replication.errors import Stopped
from taskraft_replication.node.config import NodeConfig
from taskraft_replication.node.node import Node
from taskraft_replication.peers.transport import GrpcTransport
from tests.replication.counting_machine import CountingMachine


class Turns:
    """Wakes all waiting coroutines after each event of any member."""

    def __init__(self) -> None:
        self.happened = asyncio.Event()

    def role_changed(self, state: SoftState, term: Term) -> None:
        self.happened.set()

    def applied(self, index: LogIndex) -> None:
        self.happened.set()

    def synced(self, entries: int, log_bytes: int) -> None:
        self.happened.set()

    def disk_stalled(self, *, is_stalled: bool) -> None:
        self.happened.set()

    def membership_changed(self, conf_state: ConfState) -> None:
        self.happened.set()


class LocalCluster:
    """``count`` members; each can be stopped, killed and started again."""

    def __init__(self, path: Path, count: int, **settings: int) -> None:
        self.path = path
        self.settings = {"tick_ms": 20, "segment_bytes": 1 << 16, **settings}
        self.ids = [MemberId(number) for number in range(1, count + 1)]
        self.machines = {member: CountingMachine() for member in self.ids}
        self.transports: dict[MemberId, GrpcTransport] = {}
        self.addresses: dict[MemberId, str] = {}
        self.nodes: dict[MemberId, Node] = {}
        self.changes = Turns()

    async def __aenter__(self) -> LocalCluster:
        for member in self.ids:
            self.transports[member] = GrpcTransport()
            port = await self.transports[member].start("127.0.0.1:0")
            self.addresses[member] = f"127.0.0.1:{port}"
        await asyncio.gather(*(self.start(member) for member in self.ids))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))
        await asyncio.gather(*(transport.stop() for transport in self.transports.values()))

    def config(self, member: MemberId) -> NodeConfig:
        is_joining = member not in self.ids
        named = (member,) if is_joining else self.ids
        members = {
            each: MemberInfo(each, f"m{each}", peer_address=self.addresses[each]) for each in named
        }
        return NodeConfig(
            "test",
            member,
            self.path / str(member),
            members,
            is_joining=is_joining,
            **self.settings,
        )

    async def add(self, number: int) -> Node:
        """Start a member that joins; the group must add it separately."""
        member = MemberId(number)
        self.transports[member] = GrpcTransport()
        port = await self.transports[member].start("127.0.0.1:0")
        self.addresses[member] = f"127.0.0.1:{port}"
        self.machines[member] = CountingMachine()
        return await self.start(member)

    async def stop(self, member: MemberId) -> None:
        """Stop a member in an orderly way; it can be started again."""
        await self.nodes.pop(member).stop()
        await self.transports.pop(member).stop()

    def wipe(self, member: MemberId) -> None:
        """Delete all data of a member."""
        shutil.rmtree(self.path / str(member))
        self.machines[member] = CountingMachine()

    async def start(self, member: MemberId) -> Node:
        if member not in self.transports:
            self.transports[member] = GrpcTransport()
            await self.transports[member].start(self.addresses[member])
        node = await Node.open(self.config(member), self.machines[member], self.transports[member])
        node.observe(self.changes)
        self.nodes[member] = node
        await node.start()
        return node

    async def kill(self, member: MemberId) -> None:
        """End a member like SIGKILL: nothing is flushed and leadership is not transferred."""
        node = self.nodes.pop(member)
        node._halt(Stopped("killed"))
        await asyncio.gather(
            node._effects.close(),
            self.transports.pop(member).stop(),
            asyncio.to_thread(node._worker.stop),
        )
        node._directory.release()
        self.machines[member] = self.machines[member].after_crash()

    async def until(self, condition) -> None:
        """Wait until ``condition()`` is true; the time limit of the test ends the wait."""
        async with asyncio.timeout(20):
            while not condition():
                self.changes.happened.clear()
                if not condition():
                    await self.changes.happened.wait()

    async def until_seen(self, condition) -> None:
        """Poll ``condition()`` until it is true, for changes that no observer reports."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - no event reports this change
                await asyncio.sleep(0)

    async def leader(self) -> Node:
        """Wait for a leader that a majority knows."""
        await self.until(lambda: self._leader() is not None)
        leader = self._leader()
        assert leader is not None
        return leader

    async def led_for_good(self, member: int) -> Node:
        """Make ``member`` the first leader.

        The member stays the leader on a busy machine too, if ``election_ticks`` is so large that no
        election timeout passes during the test.
        """
        first = self.nodes[MemberId(member)]
        await self.until_seen(lambda: all(node.is_running for node in self.nodes.values()))
        first._driver.campaign()
        leader = await self.leader()
        assert leader is first
        return first

    async def trimmed(self, leader: Node, index: int) -> None:
        """Let ``leader`` write until its log begins behind ``index``.

        Writing triggers the trim. A flush may take long, so not every write triggers a trim.
        """
        while leader.status().first <= index:
            await asyncio.gather(*(leader.propose(b"x" * 500) for _ in range(20)))

    def _leader(self) -> Node | None:
        for node in self.nodes.values():
            status = node.status()
            if status.role is RaftRole.LEADER and status.applied >= 2:
                followers = [
                    other.status().leader == status.member_id for other in self.nodes.values()
                ]
                if sum(followers) * 2 > len(status.conf_state.voters):
                    return node
        return None

    async def converged(self) -> None:
        """Wait until all running members have applied the same entries."""
        await self.until(
            lambda: (
                len({node.status().last for node in self.nodes.values()}) == 1
                and all(node.status().applied == node.status().last for node in self.nodes.values())
            )
        )
        assert len({self.machines[member].digest() for member in self.nodes}) == 1
