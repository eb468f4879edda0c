"""Open the state and the log of a node; repair a lost state before the node takes part.

A damaged state is set aside. If the log reaches back to the first entry, the new, empty state gets
all entries from the log. Otherwise a peer sends its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from taskraft_replication.errors import LogDamaged, LogUnreadable, StateLost
from taskraft_replication.node.log_repair import LogRepairResult, repair_log
from taskraft_replication.node.node import Node
from taskraft_replication.node.state_repair import repair_state
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.storage.data_directory import DataDirectory
from taskraft_service.api.rpc.grpc_calls import release_frames
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.process.member_replacement import is_replaced_after
from taskraft_service.process.repair_journal import RepairJournal, RepairKind
from taskraft_service.process.startup import open_machine, raft_config
from taskraft_service.storage.directory import STATE_DIRECTORY, StateMissing, set_aside
from taskraft_service.storage.node_storage import NodeStorage
from taskraft_service.storage.rocks import StateDamaged

log: Final = structlog.get_logger(__name__)


def replace_state(config: ServerConfig, reason: str) -> None:
    """Set a damaged state aside, so that the next opening of the node builds a new state."""
    aside = set_aside(config.data_dir / STATE_DIRECTORY)
    log.error(
        "the state is damaged and is rebuilt",
        reason=" ".join(reason.split()),
        kept=str(aside),
    )


@dataclass(slots=True, frozen=True)
class NodeOpener:
    """Opens the state and the Raft member of a node."""

    config: ServerConfig
    identity: MemberIdentity
    storage: NodeStorage
    security: PeerSecurity | None
    """Certificates of the peer port."""
    journal: RepairJournal

    def open_machine(self) -> QueueMachine:
        """Open the state; set a damaged state aside and open an empty state instead; blocks.

        Raises:
            StateForeign, StateDamaged, OSError: the state cannot be used, but is not lost.
        """
        opening = partial(open_machine, self.config, self.identity, self.storage)
        try:
            return opening()
        except (StateDamaged, StateMissing) as error:
            if isinstance(error, StateDamaged) and not error.is_lost:
                raise
            release_frames(error)  # they have iterators, which keep the database open
            replace_state(self.config, str(error))
        return opening()

    async def open_node(
        self,
        machine: QueueMachine,
        transport: GrpcTransport,
        directory: DataDirectory,
        show: Callable[[str], None],
    ) -> Node:
        """Open the member; fetch the state of a peer first if the log begins after the state.

        ``show`` gets the text for the probes while the node repairs itself.

        Raises:
            ReplicationError: see ``Node.open``.
        """
        settings = raft_config(
            self.config, self.identity, lambda: machine.cluster_version, self.storage
        )
        opening = partial(
            Node.open, settings, self.storage.wrap_machine(machine), transport, directory
        )
        try:
            return await self._with_whole_log(opening, machine, transport, show)
        except StateLost as lost:
            reason = str(lost)
        log.error("the state is lost; fetching the state of another member", reason=reason)
        show("repairing: fetches the state of another member")
        began = asyncio.get_running_loop().time()
        with self.journal.running(RepairKind.STATE):
            await repair_state(
                settings,
                machine,
                self.security,
                transport.offer_log,
                lambda told: show(f"repairing: {told}"),
            )
        seconds = round(asyncio.get_running_loop().time() - began, 3)
        log.warning("the state is repaired", index=machine.applied_index, seconds=seconds)
        return await opening()

    async def _with_whole_log(
        self,
        opening: Callable[[], Awaitable[Node]],
        machine: QueueMachine,
        transport: GrpcTransport,
        show: Callable[[str], None],
    ) -> Node:
        """Open the member; complete a damaged log first, unless the cluster works without it.

        Raises:
            LogDamaged: the log cannot be completed, or the member can be replaced.
            ReplicationError: see ``Node.open``.
        """
        if self.journal.suspected_log:
            damaged: LogDamaged = LogUnreadable(self.journal.suspected_log)
        else:
            try:
                return await opening()
            except LogDamaged as error:
                if not is_replaced_after(self.config, error):
                    raise
                damaged = error
        log.warning("the log is damaged; asking the other members", reason=str(damaged))
        show(f"repairing: {damaged}")
        if not await self._completes_log(machine, transport, show):
            raise damaged
        self.journal.suspected_log = ""
        self.journal.note(RepairKind.LOG)
        return await opening()

    async def _completes_log(
        self, machine: QueueMachine, transport: GrpcTransport, show: Callable[[str], None]
    ) -> bool:
        """Complete the log; return False if this node must become a new member instead."""
        try:
            result = await repair_log(
                raft_config(self.config, self.identity, storage=self.storage),
                machine.durable_index,
                self.security,
                transport.offer_log,
                lambda told: show(f"repairing: {told}"),
            )
        except LogDamaged as error:
            log.warning("the log cannot be completed", reason=str(error))
            return False
        return result is LogRepairResult.COMPLETE
