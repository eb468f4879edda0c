"""Say what a consumer that waits is to the leader, and what a claim for it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.proposal import AppliedCommand, SubmitFailure


class WaitingConsumer(Protocol):
    """Somebody who waits: one call of TakeTasks, or a subscription with its credit."""

    @property
    def sources(self) -> Sequence[str]:
        """Names of tubes, or patterns, in order of preference."""

    @property
    def one_shot(self) -> bool:
        """Tell whether it leaves after its first tasks; until then it keeps its place in line."""

    @property
    def is_selective(self) -> bool:
        """Tell whether it wants some of the ready tasks only: then others behind it try as well."""

    def allows(self, tube: str) -> bool:
        """Tell whether a tube that a pattern matches may be taken from."""

    def wanted_tasks(self) -> int:
        """Return how many tasks it could take now, beyond those of claims not answered yet."""

    def take(self, tubes: Sequence[str], tasks_max: int) -> EncodedCommand:
        """Return the command that takes for it from existing tubes; the claim counts from now."""

    def answered(self, claim: Claim, outcome: AppliedCommand | SubmitFailure) -> None:
        """Take what became of a claim; tasks that nobody wants any more are given back."""

    def tube_dropped(self, tube: str) -> None:
        """Take note that a tube is gone; another of its name may come."""


@dataclass(slots=True, eq=False)
class Claim:
    """A take proposed for a consumer; ``shares`` says how many tasks are hoped for by tube."""

    consumer: WaitingConsumer
    encoded: EncodedCommand
    tasks_max: int
    shares: Mapping[str, int]
    serials: Mapping[str, int]
    """The tubes' serials when it was made."""
