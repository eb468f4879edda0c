"""Manage the temporary tubes of the leader.

At the start of a leadership the tubes are empty; at its end their contents are discarded. The tubes
follow their replicated definitions. When a session ends in the log, its leases on temporary tasks
end too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

import structlog

from taskraft_service.clock.cluster_clock import TIMER_MS_MAX
from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import AppliedCommand, NotProposed
from taskraft_service.leader.proposer import Clock
from taskraft_service.leader.temporary.memory_queue import MemoryQueue
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.queue_locator import QueueLocator, origin_of
from taskraft_service.queue.entities.id_layout import is_nearly_used_up
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.entities.tube_options import Durability, TubeOptions, TubeView
from taskraft_service.queue.operations.leadership import SetWallOffset
from taskraft_service.queue.operations.registry import Command, Result
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.temporary_tubes import NOWHERE, Side

log: Final = structlog.get_logger(__name__)

Emptied = Callable[[str, int], None]
"""Called with the name of a dropped tube, or the id of an ended session, and its number of
tasks."""


class TemporaryTubes:
    """The temporary tubes of this node.

    Args:
        queues: the queues of this node.
        clock: the cluster's clock.
        waiters: the waiting consumers.
        bytes_max: maximum memory of the contents, in bytes.
        drivers: installed tube drivers by name.
        defect_met: called with an exception of the core; the state is then undefined.
        timer_ms_max: maximum delay of the deadline timer.
    """

    def __init__(
        self,
        queues: QueueLocator,
        clock: Clock,
        waiters: Waiters,
        bytes_max: int,
        drivers: Mapping[str, TubeDriver],
        defect_met: Callable[[Exception], None],
        timer_ms_max: int = TIMER_MS_MAX,
    ) -> None:
        self._timer_ms_max = timer_ms_max
        self._queues = queues
        self._clock = clock
        self._waiters = waiters
        self._bytes_max = bytes_max
        self._drivers = drivers
        self._defect_met = defect_met
        self._memory: MemoryQueue | None = None
        self.definitions: dict[str, int] = {}
        """Number of the replicated definition, by name of the tube."""
        self._listeners: list[Callable[[int], None]] = []
        self._emptied: list[Emptied] = []
        self._serving: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    # ------------------------------------------------------------------------------ contents

    def holds(self, tube: str) -> bool:
        """Return whether a tube is temporary and this leader has its contents."""
        return tube in self.definitions

    def side_of(self, tube: str) -> Side:
        """Return the side of a tube."""
        if tube in self.definitions:
            return Side.MEMORY
        is_known = self._queues.replicated.tube_number(tube) is not None
        return Side.LOG if is_known else NOWHERE

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the contents, in bytes."""
        return self._memory.memory_bytes if self._memory is not None else 0

    def refusal_to_drop(self, command: DropTube) -> Refusal | None:
        """Return why a tube cannot be dropped, or None.

        A repeated request is not refused, because it gets its first answer and does not affect a
        new tube of the same name.
        """
        is_repeated = self._queues.replicated.remembers(command.request_id)
        if self._memory is None or command.force or is_repeated:
            return None
        self.advance()  # an expired lease does not count
        return self._memory.queue.refusal_to_drop(command.name)

    def remembers(self, request_id: str) -> bool:
        """Return whether the temporary queue keeps the answer of a request id."""
        return self._memory is not None and self._memory.queue.remembers(request_id)

    def is_nearly_used_up(self) -> bool:
        """Return whether this leadership has nearly used up its task ids or lease tokens."""
        return self._memory is not None and is_nearly_used_up(self._memory.highest_number())

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the time after each change."""
        self._listeners.append(listener)

    def listen_emptied(self, listener: Emptied) -> None:
        """Call ``listener`` when tasks are removed with their tube or session."""
        self._emptied.append(listener)

    # ------------------------------------------------------------------------------ leadership

    def begin(self, term: int) -> None:
        """Begin a leadership, after all earlier entries are applied."""
        self.end()
        self._memory = MemoryQueue(origin_of(term), self._bytes_max, self._drivers)
        self._queues.set_temporary(self._memory.queue)
        self._follow_definitions(self._queues.replicated.temporary_tubes())

    def end(self) -> None:
        """End a leadership and discard the contents."""
        self._memory = None
        self._queues.set_temporary(None)
        self.definitions.clear()
        self._set_timer(None)
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None

    # ------------------------------------------------------------------------------ notifications

    def applied(self, _now_ms: int) -> None:
        """Follow definitions and sessions; called after each slice of applied entries."""
        replicated = self._queues.replicated
        redefined = replicated.redefined_tubes()
        ended = replicated.watch.fetch_sessions()
        if self._memory is None:
            return
        if redefined:
            self._follow_definitions(redefined)
        for session_id, uncounted in ended:
            # An earlier leadership of this node may have watched the session.
            if self._memory.queue.session(session_id) is not None:
                self._empty(session_id, CloseSession(session_id, uncounted))

    def _follow_definitions(self, names: Iterable[str]) -> None:
        """Create, change or drop tubes according to their replicated definitions."""
        replicated = self._queues.replicated
        for name in names:
            view, number = replicated.tube(name), replicated.tube_number(name)
            is_temporary = view is not None and view.options.durability is Durability.TEMPORARY
            if name in self.definitions and (not is_temporary or self.definitions[name] != number):
                del self.definitions[name]
                self._empty(name, DropTube(name, force=True))
            if is_temporary:
                assert view is not None
                assert number is not None
                self._define(view, is_new=name not in self.definitions)
                self.definitions[name] = number

    def _define(self, view: TubeView, *, is_new: bool) -> None:
        """Create a tube, or set its options, according to its definition."""
        # In this queue the tube is an ordinary tube; only the replicated queue treats it as
        # temporary.
        options = replace(view.options, durability=Durability.REPLICATED)
        names = [field.name for field in fields(TubeOptions)]
        command: CreateTube | UpdateTube
        if is_new:
            command = CreateTube(
                view.name,
                view.kind,
                options,
                profile=view.profile,
                driver=view.driver,
                driver_version=view.driver_version,
            )
        else:
            command = UpdateTube(view.name, options, names, [])
        (result,) = self._apply((command,))
        assert not isinstance(result, Refusal), f"a definition that was accepted: {result}"

    def _empty(self, what: str, command: DropTube | CloseSession) -> None:
        """Drop a tube or close a session, and report its number of tasks."""
        (result,) = self._apply((command,))
        assert isinstance(result, CountResult), f"a tube or session that was there: {result}"
        for listener in self._emptied:
            listener(what, result.count)

    # ------------------------------------------------------------------------------ commands

    def submit(self, encoded: EncodedCommand) -> AppliedCommand:
        """Execute a command at once.

        Raises:
            NotProposed: this node does not lead.
        """
        if self._memory is None:
            raise NotProposed("this node does not lead")
        return self._answer(encoded.command)

    def _answer(self, command: Command) -> AppliedCommand:
        result: Result | None = None
        if isinstance(command, Take) and command.session_id:
            result = self._without_session(command.session_id)
        if result is None:
            (result,) = self._apply((command,))
        replicated = self._queues.replicated
        return AppliedCommand(
            replicated.applied_index, self._queues.now_ms, replicated.wall_offset_ms, result
        )

    def _without_session(self, session_id: str) -> Refusal | None:
        """Open the session of a take in this queue too; return a refusal if it is unknown."""
        assert self._memory is not None
        if self._memory.queue.session(session_id) is not None:
            return None
        replicated = self._queues.replicated
        view = replicated.session(session_id)
        if view is None:
            return Refusal(
                Reason.SESSION_NOT_FOUND,
                "the session does not exist or has expired; open a new one",
            )
        replicated.watch.add_session(session_id)
        self._apply((OpenSession(session_id, view.name, 0, owner=view.owner),))
        return None

    def _apply(self, commands: Sequence[Command]) -> Sequence[Result]:
        """Apply commands and signal the waiting consumers of the tubes with ready tasks."""
        memory = self._memory
        assert memory is not None
        queue, now_ms = memory.queue, self._clock.now_ms()
        offset_ms = self._queues.replicated.wall_offset_ms
        try:
            if offset_ms != queue.wall_offset_ms:
                memory.apply(now_ms, (SetWallOffset(offset_ms),))
            fed = queue.could_be_ready(commands, now_ms) if len(self._waiters) else ()
            results = memory.apply(now_ms, commands)
        except Exception as error:
            self._defect_met(error)
            raise
        if queue.quarantines.causes:
            # Only this leader has the tasks, so no other member must confirm the quarantine.
            log.error("tubes quarantined", tubes=dict(queue.quarantines.fetch_causes()))
        for tube in (*sorted(fed), *queue.woken_tubes()):
            self._waiters.expect_ready(tube, 0)
            self.wake()
        self._set_timer(queue.next_deadline_ms())
        for listener in self._listeners:
            listener(now_ms)
        return results

    # ---------------------------------------------------------------------------- waiting consumers

    def wake(self) -> None:
        """Serve the waiting consumers in the next iteration of the event loop."""
        if self.definitions and self._serving is None:
            self._serving = asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = None
        claims = self._waiters.claims(self.holds)
        for claim in claims:
            outcome = self._answer(claim.encoded.command)
            claim.consumer.answered(claim, outcome)
            result = outcome.result
            took = result if isinstance(result, TakeResult) else TakeResult(())
            self._waiters.claim_answered(claim, len(took.tasks), cut_short=took.cut_short)
        if claims:
            self.wake()

    # ------------------------------------------------------------------------------ deadlines

    def _set_timer(self, due_ms: int | None) -> None:
        """Wake at the next deadline, unless a command arrives before."""
        if self._timer is not None:
            if due_ms == self._timer_ms:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_ms = due_ms
        if due_ms is not None:
            wait_ms = min(max(due_ms - self._clock.now_ms(), 0), self._timer_ms_max)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._at_deadline)

    def _at_deadline(self) -> None:
        self._timer = None
        self.advance()

    def advance(self) -> None:
        """Fire the deadlines that are due."""
        self._apply(())
