"""Join all commands of one moment into one log entry, on the leader.

Group commit is the only path: while an entry is being synced, commands gather for the next one. The
takes of waiting consumers go into the entry that can feed them; when nothing comes, an empty entry
at the next deadline moves the clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.errors import NotRaftLeader
from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.entries.log_entry import encode_entry
from taskraft_service.leader.pending import PendingCommand, PendingCommands, ProposerLimits
from taskraft_service.leader.proposal import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
    SubmitFailure,
)
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import Claim
from taskraft_service.machine.state_machine import AppliedEntry
from taskraft_service.queue.operations.registry import Command
from taskraft_service.queue.operations.take import TakeResult

DEADLINE_DELAY_MAX_MS: Final = 60_000
"""The timer for the next deadline is set anew at least so often."""
ENTRY_HEAD_BYTES: Final = 16


class Replicator(Protocol):
    """What the proposer needs of the Raft driver."""

    @property
    def append_idle(self) -> bool:
        """Tell whether everything proposed so far has been synced here."""

    def propose(self, data: bytes) -> asyncio.Future[object]:
        """Append an entry; the future has what the state machine returns for it.

        Fails with NotLeader or ProposalDropped when nothing was appended, with another error when
        the outcome is unknown.
        """

    def flush_proposals(self) -> None:
        """Send and store the proposed entries now instead of in the next turn of the event loop."""


class Clock(Protocol):
    """Where stamps come from."""

    def now_ms(self) -> int:
        """Return the time; never lower than before."""


class Core(Protocol):
    """What the proposer needs of the state machine and its queue."""

    def expect(self, data: bytes, now_ms: int, commands: Sequence[Command]) -> None:
        """Keep the commands of an entry until it is applied."""

    def next_deadline_ms(self) -> int | None:
        """Return when the clock must move next; None: nothing is due ever."""

    def is_logged(self, tube: str) -> bool:
        """Tell whether takes from a tube go into the log."""

    def feeds(self, commands: Sequence[Command], now_ms: int) -> Mapping[str, int]:
        """Return how many tasks an entry of this time may make ready, by tube; an estimate."""


class EntryObserver(Protocol):
    """Whoever measures entries."""

    def entry_applied(self, commands: int, entry_bytes: int, seconds: float) -> None:
        """Learn of an entry of this leader, and how long it took from proposal to result."""


@dataclass(slots=True, eq=False)
class _InFlight:
    """An entry that was proposed and is not applied yet."""

    stamp_ms: int
    began: float
    entry_bytes: int
    pending: Sequence[PendingCommand]
    claims: Sequence[Claim]
    fed: Mapping[str, int]


class Proposer:
    """Builds entries while this node leads.

    Args:
        replicator: the Raft driver.
        core: the state machine.
        clock: the cluster's clock.
        waiters: the consumers that wait.
        observer: measures entries.
        limits: bounds.
    """

    def __init__(
        self,
        replicator: Replicator,
        core: Core,
        clock: Clock,
        waiters: Waiters,
        observer: EntryObserver,
        limits: ProposerLimits,
    ) -> None:
        self._replicator = replicator
        self._core = core
        self._clock = clock
        self._waiters = waiters
        self._observer = observer
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._pending = PendingCommands(limits, self._loop)
        self._in_flight: deque[_InFlight] = deque()
        self._open = False
        self._build_handle: asyncio.Handle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------ commands

    def submit(
        self, encoded: EncodedCommand, deadline: float | None = None
    ) -> asyncio.Future[AppliedCommand]:
        """Propose a command with the next entry.

        Args:
            encoded: the command.
            deadline: time of the event loop from which on nobody waits for the outcome; a command
                that has not reached the log by then never does.

        Returns:
            The outcome; fails with NotProposed or OutcomeUnknown.

        Raises:
            Overloaded: too much waits already.
            NotProposed: this node does not lead.
        """
        if not self._open:
            raise NotProposed("this node does not lead")
        future = self._pending.add(encoded, deadline)
        self.wake()
        return future

    @property
    def pending(self) -> int:
        """How many commands wait for an entry."""
        return len(self._pending)

    @property
    def dropped(self) -> int:
        """How many commands never reached the log, since the process started."""
        return self._pending.dropped

    # ------------------------------------------------------------------------------ leadership

    async def start(self, startup: EncodedCommand) -> AppliedCommand:
        """Begin a leadership: commit its first command, then take others.

        Raises:
            NotProposed: leadership was lost again before the entry was appended.
            OutcomeUnknown: leadership was lost again.
        """
        future: asyncio.Future[AppliedCommand] = self._loop.create_future()
        self._propose(self._clock.now_ms(), [PendingCommand(startup, future, None)], [], {})
        outcome = await future
        self._open = True
        self._set_timer()
        return outcome

    def stop(self) -> None:
        """End a leadership: what waits is dropped, what is in flight is left to the log."""
        self._open = False
        if self._build_handle is not None:
            self._build_handle.cancel()
            self._build_handle = None
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        self._pending.drop_all("leadership was lost")

    # ------------------------------------------------------------------------------ entries

    def wake(self) -> None:
        """Build the next entry soon: after what else arrives at this moment.

        While there is no room for one, the end of an entry or of a sync will ask again.
        """
        if self._open and self._build_handle is None and self._has_room():
            self._build_handle = self._loop.call_soon(self._build)

    def _build(self) -> None:
        self._build_handle = None
        while self._open and self._has_room():
            stamp_ms = self._clock.now_ms()
            due = self._due(stamp_ms)
            pending = self._pending.gather()
            fed = self._feed(pending, stamp_ms) if pending or due else {}
            claims = self._waiters.claims(self._core.is_logged)
            if not pending and not claims and not due:
                break
            self._propose(stamp_ms, pending, claims, fed)

    def _has_room(self) -> bool:
        """Tell whether the next entry may go: never while one is being synced.

        What arrives during a sync goes into one entry. The exception is a full entry behind ones
        that only wait for the other members. Others wait with them: with 32 clients of one call
        each, letting entries go early made them small and cost 16 to 46 % of the puts.
        """
        if not self._in_flight:
            return True
        return (
            self._pending.fills_an_entry
            and self._replicator.append_idle
            and len(self._in_flight) < self._limits.entries_in_flight
        )

    def _due(self, now_ms: int) -> bool:
        """Tell whether a deadline is due that no entry in flight reaches."""
        deadline_ms = self._core.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return False
        return not self._in_flight or self._in_flight[-1].stamp_ms < deadline_ms

    def _feed(self, pending: Sequence[PendingCommand], stamp_ms: int) -> Mapping[str, int]:
        fed = self._core.feeds([one.encoded.command for one in pending], stamp_ms)
        for tube, tasks in fed.items():
            self._waiters.expect_ready(tube, tasks)
        return fed

    def _propose(
        self,
        stamp_ms: int,
        pending: Sequence[PendingCommand],
        claims: Sequence[Claim],
        fed: Mapping[str, int],
    ) -> None:
        encoded = [one.encoded for one in pending] + [claim.encoded for claim in claims]
        data = encode_entry(stamp_ms, encoded)
        self._core.expect(data, stamp_ms, [one.command for one in encoded])
        entry = _InFlight(stamp_ms, self._loop.time(), len(data), pending, claims, fed)
        self._in_flight.append(entry)
        self._replicator.propose(data).add_done_callback(partial(self._done, entry))
        self._replicator.flush_proposals()

    # ------------------------------------------------------------------------------ outcomes

    def _done(self, entry: _InFlight, future: asyncio.Future[object]) -> None:
        self._in_flight.remove(entry)
        for tube, tasks in entry.fed.items():
            self._waiters.forget_expected(tube, tasks)
        failure = future.exception() if not future.cancelled() else OutcomeUnknown("stopped")
        if failure is None:
            applied = future.result()
            assert isinstance(applied, AppliedEntry)
            self._resolve(entry, applied)
            seconds = self._loop.time() - entry.began
            self._observer.entry_applied(len(applied.results), entry.entry_bytes, seconds)
        else:
            self._fail(entry, failure)
        self._set_timer()
        self.wake()

    def _resolve(self, entry: _InFlight, applied: AppliedEntry) -> None:
        results = iter(applied.results)
        for one, result in zip(entry.pending, results, strict=False):
            if not one.future.done():
                one.future.set_result(AppliedCommand(applied.index, applied.now_ms, result))
        for claim, result in zip(entry.claims, results, strict=True):
            tasks = len(result.tasks) if isinstance(result, TakeResult) else 0
            claim.consumer.answered(claim, AppliedCommand(applied.index, applied.now_ms, result))
            self._waiters.claim_answered(claim, tasks)

    def _fail(self, entry: _InFlight, failure: BaseException) -> None:
        error: SubmitFailure
        match failure:
            case ProposalDropped(reason=DropReason.TOO_MANY_UNCOMMITTED):
                error = LeaderOverloaded("too much waits for the other members")
            case ProposalDropped() | NotRaftLeader():
                error = NotProposed(str(failure))
            case _:
                error = OutcomeUnknown(str(failure))
        for one in entry.pending:
            if not one.future.done():
                one.future.set_exception(error)
        for claim in entry.claims:
            claim.consumer.answered(claim, error)
            self._waiters.claim_answered(claim, 0)

    # ------------------------------------------------------------------------------ deadlines

    def _set_timer(self) -> None:
        """Wake at the next deadline, if no command comes before."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        deadline_ms = self._core.next_deadline_ms()
        if not self._open or deadline_ms is None:
            return
        delay_ms = min(max(deadline_ms - self._clock.now_ms(), 0), DEADLINE_DELAY_MAX_MS)
        self._deadline_timer = self._loop.call_later(delay_ms / 1000, self._at_deadline)

    def _at_deadline(self) -> None:
        if self._due(self._clock.now_ms()):
            self.wake()
        elif not self._in_flight:
            # Otherwise the end of what is in flight does it: perhaps that reaches the deadline.
            self._set_timer()
