"""A node in memory: the real services, leader and queue, without log, disk and ports.

The node has the parts of ``process.node_server.NodeServer``, except for Raft (see ``SoleMember``),
RocksDB (see ``MemoryDatabase``), the gRPC server (see ``DirectChannel``) and the operating system's
clocks. It is the only member of its cluster. The state is lost with the object.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, cast

from taskraft_replication.node.node import Node
from taskraft_service.access.security import NodeSecurity
from taskraft_service.api.streams.subscribe_stream import SubscribeStream
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.drivers import installed_drivers
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.memory_node.direct_calls import DirectChannel, MethodHandler
from taskraft_service.memory_node.memory_machine import memory_machine
from taskraft_service.memory_node.sole_member import SoleMember
from taskraft_service.process.components import NodeComponents
from taskraft_service.process.services import servicers

ADDRESS: Final = "memory:7401"
"""Address of the node, for clients that need one."""
_MEMBER: Final = PeerAddress(1, "memory", "memory:7402", ADDRESS)
HEARTBEAT_TIMER: Final = SubscribeStream._heartbeat  # noqa: SLF001 - compared with, not called
"""The function that the timers for the heartbeats of streams call."""
_drivers = cache(installed_drivers)


class MemoryNode:
    """A node that leads; create it in a running event loop.

    Args:
        clocks: the clocks of the node.
        auto_create_tubes: whether the first put creates a missing tube.
    """

    def __init__(self, clocks: NodeClocks, *, auto_create_tubes: bool = False) -> None:
        # Neither the environment nor a file can change the settings of a test.
        config = ServerConfig.model_construct(
            node_name=_MEMBER.name,
            data_dir=Path("/"),
            disk_low_bytes=0,
            auto_create_tubes=auto_create_tubes,
        )
        self.machine = memory_machine(clocks.monotonic_ms, _drivers())
        self._member = SoleMember(_MEMBER, self.machine)
        self.components = NodeComponents(
            config,
            MemberIdentity(_MEMBER, (_MEMBER,)),
            cast("Node", self._member),  # has all attributes that the components use
            self.machine,
            NodeSecurity(config),
            clocks,
            self._member.fail,
        )
        self.handlers: Final[dict[str, MethodHandler]] = {}
        """The handlers by the full names of their methods; a test may wrap them."""
        table = self.components.endpoint.table(servicers(self.components))
        for path, method in table.items():
            self.handlers[path] = method.handle

    @property
    def broken_by(self) -> Exception | None:
        """The error that broke the node; None: it works."""
        failed = self._member.failed
        return failed.result() if failed.done() else None

    def channel(self) -> DirectChannel:
        """Return a new channel to the node."""
        return DirectChannel(self.handlers)

    async def start(self) -> None:
        """Make the node the leader."""
        self.elect()
        await self.wait_until_serving()

    async def wait_until_serving(self) -> None:
        """Wait until the node leads and its first entry is applied."""
        while self.components.phases.phase is not NodePhase.RUNNING:
            await self.components.leadership.wait_for_change()

    def depose(self) -> None:
        """End the leadership of the node: streams end, and waiting calls look for the next leader.

        Tasks of temporary tubes are lost. The clients find no leader until ``elect``.
        """
        soft = self._member.depose()
        self.components.leadership.role_changed(soft, self._member.term)

    def elect(self) -> None:
        """Make the node the leader of the next term."""
        soft = self._member.elect()
        self.components.leadership.role_changed(soft, self._member.term)
        self.components.leadership.caught_up()

    @property
    def has_leases(self) -> bool:
        """Whether a task is TAKEN."""
        return any(queue.has_leases for queue in self.components.queues.all)

    async def keep_house(self) -> None:
        """Do the periodic work of a leader: trim the change feed, count the calls."""
        await self.components.housekeeping.trim_feed()
        await self.components.housekeeping.log_calls()
