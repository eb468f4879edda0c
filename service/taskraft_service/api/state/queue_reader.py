"""Read the queue with the consistency that the caller asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.errors import ReadUnconfirmed
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import foreign_leases
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.entities.tube_profiles import PROFILES
from taskraft_service.queue.queue import Queue


class StalenessGuard:
    """Bounds the staleness of local reads without synchronised clocks.

    A ReadIndex confirmation proves that the local state contains every write that was acknowledged
    before the confirmation was requested. A bounded-staleness read is served locally while the
    latest confirmation is younger than the caller's bound, measured on this node's monotonic clock.
    The time of the last leader contact is not used: it does not show how far this node has applied
    the log, and a partitioned leader cannot tell whether a newer leader exists.

    Args:
        confirm: returns once everything acknowledged before the call is applied here (ReadIndex).
        silence_ms: returns for how many ms no leader has been known.
        monotonic_ms: a monotonic clock, in ms.
    """

    def __init__(
        self,
        confirm: Callable[[], Awaitable[object]],
        silence_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._confirm = confirm
        self._silence_ms = silence_ms
        self._monotonic_ms = monotonic_ms
        self._confirmed_ms: int | None = None
        """Monotonic time in ms at which the latest confirmation was requested; None: none was
        requested.
        """

    async def barrier(self) -> None:
        """Wait until everything that was acknowledged before the call is applied here.

        Raises:
            ReadUnconfirmed: no quorum confirmed the read.
        """
        requested_ms = self._monotonic_ms()
        await self._confirm()
        self._confirmed_ms = max(requested_ms, self._confirmed_ms or requested_ms)

    async def check_staleness(self, staleness_ms_max: int) -> None:
        """Check that the applied state is at most ``staleness_ms_max`` stale; confirm if needed.

        Raises:
            CallRefused: NODE_BEHIND, the bound cannot be confirmed.
        """
        confirmed_ms = self._confirmed_ms
        if confirmed_ms is not None and self._monotonic_ms() - confirmed_ms <= staleness_ms_max:
            return
        silence_ms = self._silence_ms()
        if silence_ms <= staleness_ms_max:
            try:
                await self.barrier()
            except ReadUnconfirmed:
                silence_ms = self._silence_ms()
            else:
                return
        raise CallRefused(
            error_pb2.Error.NODE_BEHIND,
            f"cannot serve a read at most {staleness_ms_max} ms stale: no leader has confirmed "
            f"this node's state (no leader known for {silence_ms} ms); retry, ask another node, "
            f"or allow a larger staleness",
            {"silence_ms": str(silence_ms)},
        )


class QueueReader:
    """Returns the queue once it meets the consistency of a read.

    Args:
        machine: the state machine with the queue.
        staleness: checks the staleness of the applied state.
        queues: finds the queue, replicated or temporary, that holds a tube.
        clock_ms: the cluster's time as estimated by this node, in ms.
    """

    def __init__(
        self,
        machine: QueueMachine,
        staleness: StalenessGuard,
        queues: QueueLocator,
        clock_ms: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._clock_ms = clock_ms
        self.barrier = staleness.barrier
        self._staleness = staleness
        self.queues = queues

    @staticmethod
    def is_local(consistency: task_pb2.Consistency) -> bool:
        """Return whether a read accepts the applied state of any node."""
        return consistency.level == task_pb2.Consistency.LOCAL

    def can_read_here(self, consistency: task_pb2.Consistency, tube: str) -> bool:
        """Return whether this node may serve a read of a tube.

        Only the leader holds the tasks of temporary tubes.
        """
        return self.is_local(consistency) and not self.applied.is_temporary(tube)

    def check_holds(self, tubes: Sequence[str]) -> None:
        """Check that this node holds the tasks of some tubes.

        Raises:
            NotProposed: a tube is temporary and this node does not lead, so that the call is
                forwarded to the leader.
        """
        if not self.queues.holds_temporary:
            temporary = frozenset(self.applied.temporary_tubes())
            if temporary and not temporary.isdisjoint(tubes):
                raise NotProposed("only the leader holds the tasks of temporary tubes")

    def defines_zero(self, tubes: Iterable[str]) -> bool:
        """Return whether the profiles of all tubes define a time to live or to run of 0."""
        views = [self.applied.tube(name) for name in tubes]
        return all(view is not None and PROFILES[view.profile].defines_zero for view in views)

    def defines_zero_for(self, settlements: Sequence[pb.Settlement], caller: Caller) -> bool:
        """Return ``defines_zero`` for the tubes of the caller's leases that settlements name.

        The leases of others have no influence, so a caller does not learn of them.
        """
        tokens = {token for one in settlements for token in one.tokens}
        tokens -= foreign_leases(self.queues, settlements, caller)
        return self.defines_zero(
            {task.tube for queue in self.queues.all for task in queue.leased(tokens)}
        )

    async def queue(self, consistency: task_pb2.Consistency) -> Queue:
        """Return the queue for a checked read; valid until the caller awaits again.

        Raises:
            CallRefused: NODE_BEHIND, the state may be staler than the caller allows.
            ReadUnconfirmed: no quorum confirmed a linearizable read.
        """
        if not self.is_local(consistency):
            await self.barrier()
        elif consistency.staleness_ms_max:
            await self._staleness.check_staleness(consistency.staleness_ms_max)
        return self._machine.queue

    @property
    def wall_offset_ms(self) -> int:
        """Wall time minus cluster time, as applied on this node."""
        return self._machine.queue.wall_offset_ms

    def wall_now_ms(self) -> int:
        """Return the cluster's time as callers see it."""
        return self.now_ms() + self.wall_offset_ms

    def now_ms(self) -> int:
        """Return the cluster's time; the queue's own clock only moves when commands are applied."""
        return max(self._clock_ms(), self.queues.now_ms)

    @property
    def applied(self) -> Queue:
        """The queue as applied on this node."""
        return self._machine.queue
