"""Interface of a waiting consumer, and the claims that the leader proposes for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Final, Protocol

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import AppliedCommand, SubmitFailure

CLAIM_TASKS_PER_ENTRY_MAX: Final = 1_000
"""Number of tasks in the claims of one entry at which no further claim is appended."""
CLAIM_BYTES_PER_ENTRY_MAX: Final = 8 * 1024 * 1024
"""Total size of the takes in one entry at which no further take is appended. A take with a pattern
lists all matching tubes that have tasks, so the takes could otherwise exceed the size of an
entry."""
CLAIM_STEPS_PER_ENTRY_MAX: Final = 1_000
"""Number of steps of the claims of one entry at which no further claim is appended; the others
follow with the next entry. A step is a tube, or a waiting consumer, that is looked at, and takes
about 3 us."""
STEPS_PER_CLAIM: Final = 12
"""Number of steps for the time in which a claim is made and encoded."""
CLAIM_STEPS_MAX: Final = 500
"""Number of steps at which one claim looks at no further tube."""
CONSUMERS_PER_STEP: Final = 50
"""Number of consumers that are put in order for the time of one step."""
NAMES_PER_STEP: Final = 4
"""Number of names of tubes that are looked up or moved in tables, or compared with one pattern, for
the time of one step."""
NAMES_FOUND_PER_STEP: Final = 50
"""Number of names that are looked up in one table, one after another, for the time of one step."""


def scan_steps(*tables: Sized) -> int:
    """Return the number of steps of a search for the names that all these tables have."""
    return 1 + min(map(len, tables)) // NAMES_PER_STEP


@dataclass(slots=True, frozen=True)
class ConsumerProfile:
    """Identity and waiting time of a consumer, for lists of the waiting consumers.

    Attributes:
        principal: name of the caller; empty without authentication.
        peer: address of the client.
        session_id: session that holds the leases; empty: none.
        types: types of tasks that the consumer accepts; empty: all.
        since_ms: instant since which the consumer waits, in wall time.
        until_ms: instant at which the wait ends; 0: when the stream is closed.
    """

    principal: str = ""
    peer: str = ""
    session_id: str = ""
    types: Sequence[str] = ()
    since_ms: int = 0
    until_ms: int = 0


class WaitingConsumer(Protocol):
    """A consumer that waits for tasks on the leader: a blocked take or an open subscription."""

    @property
    def profile(self) -> ConsumerProfile:
        """Identity and waiting time of the consumer."""

    @property
    def sources(self) -> Sequence[str]:
        """Tube names or patterns, in order of preference."""

    @property
    def one_shot(self) -> bool:
        """Return whether the consumer stops waiting after its first tasks."""

    @property
    def is_selective(self) -> bool:
        """Return whether the consumer accepts only some of the ready tasks.

        The consumers behind a selective consumer also try to take the same tasks.
        """

    def allows(self, tube: str) -> bool:
        """Return whether the consumer may take from a tube that one of its patterns matches."""

    def yields(self, tube: str) -> bool:
        """Return whether other consumers of a tube that do not yield are served first."""

    def wanted_tasks(self) -> int:
        """Return the number of tasks that the consumer can accept beyond its unanswered claims."""

    def take(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return a take from existing tubes, whose result is later passed to ``answered``."""

    def answered(self, claim: Claim, outcome: AppliedCommand | SubmitFailure) -> None:
        """Handle the result of a claim; tasks that the consumer no longer wants are released."""

    def tube_dropped(self, tube: str) -> None:
        """Handle the removal of a tube; a new tube of the same name may be created later."""


@dataclass(slots=True, eq=False)
class Claim:
    """A take that the leader proposes for a consumer; ``shares`` estimates the tasks per tube."""

    consumer: WaitingConsumer
    encoded: EncodedCommand
    tasks_max: int
    estimated: int
    """Number of tasks that the take is expected to get."""
    first: str
    """The tube for which the claim was made."""
    shares: Mapping[str, int]
    serials: Mapping[str, int]
    """Serials of the tubes when the claim was made."""


@dataclass(slots=True)
class EntryClaims:
    """The claims of the entry that is being built."""

    among: Callable[[str], bool]
    """Accepts the tubes of the claims."""
    claims: list[Claim] = field(default_factory=list)
    size_bytes: int = 0
    tasks: int = 0
    steps: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether further claims must wait for the next entry."""
        return (
            self.size_bytes >= CLAIM_BYTES_PER_ENTRY_MAX
            or self.tasks >= CLAIM_TASKS_PER_ENTRY_MAX
            or self.steps >= CLAIM_STEPS_PER_ENTRY_MAX
        )

    def add(self, claim: Claim) -> None:
        """Append a claim for the entry."""
        self.claims.append(claim)
        self.size_bytes += claim.encoded.record_bytes
        self.tasks += claim.estimated
        self.steps += STEPS_PER_CLAIM
