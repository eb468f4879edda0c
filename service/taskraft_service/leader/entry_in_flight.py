"""Track an entry that was proposed and is not applied yet, and answer its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskraft_replication.core.config import ENTRY_BYTES_MAX
from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.errors import NotRaftLeader
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
    SubmitFailure,
)
from taskraft_service.leader.pending import PendingCommand
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import Claim
from taskraft_service.machine.failed_drivers import AppliedEntry
from taskraft_service.queue.operations.take import TakeResult


@dataclass(slots=True, eq=False)
class EntryInFlight:
    """The commands of clients and the claims of waiting consumers in one proposed entry."""

    timestamp_ms: int
    began: float
    """Event loop time at which the entry was proposed."""
    entry_bytes: int
    pending: Sequence[PendingCommand]
    claims: Sequence[Claim]
    """Claims; in the entry they follow the commands."""
    expected: Mapping[str, int]
    """Maximum number of tasks that the entry will make ready, by tube."""

    def resolve(self, applied: AppliedEntry, waiters: Waiters) -> None:
        """Answer the commands and claims with the results of the applied entry."""
        now_ms, wall_offset_ms = applied.now_ms, applied.wall_offset_ms
        results, repeated = applied.results, applied.repeated
        commands = len(self.pending)
        for one, result in zip(self.pending, results[:commands], strict=True):
            outcome = one.outcome
            if not outcome.done():
                index = repeated.get(one.encoded.command.request_id, applied.index)
                outcome.set_result(AppliedCommand(index, now_ms, wall_offset_ms, result))
                if outcome.then is not None:  # saves a call
                    outcome.tell()
        for claim, result in zip(self.claims, results[commands:], strict=True):
            took = result if isinstance(result, TakeResult) else TakeResult(())
            index = repeated.get(claim.encoded.command.request_id, applied.index)
            claim.consumer.answered(claim, AppliedCommand(index, now_ms, wall_offset_ms, result))
            waiters.claim_answered(claim, len(took.tasks), cut_short=took.cut_short)

    def fail(self, failure: BaseException, waiters: Waiters) -> None:
        """Answer the commands and claims with the reason why the entry was not applied here."""
        error: SubmitFailure
        match failure:
            case ProposalDropped(reason=DropReason.TOO_MANY_UNCOMMITTED):
                error = LeaderOverloaded(
                    "too many uncommitted entries wait for other members; retry later"
                )
            case ProposalDropped(reason=DropReason.ENTRY_TOO_LARGE):
                error = CommandTooLarge(self.entry_bytes, ENTRY_BYTES_MAX)
            case ProposalDropped() | NotRaftLeader():
                error = NotProposed(str(failure))
            case _:
                error = OutcomeUnknown(str(failure))
        for one in self.pending:
            one.outcome.fail(error)
        for claim in self.claims:
            claim.consumer.answered(claim, error)
            waiters.claim_answered(claim, 0)
