"""Compare tubes with the patterns of the waiting consumers.

A tube that is created is compared with each distinct set of waiting patterns once. A consumer that
begins to wait is compared with the existing tubes in steps, because a pattern can match all tubes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from taskraft_service.languages.patterns import PatternSet
from taskraft_service.leader.shared_patterns import SharedPatterns
from taskraft_service.leader.waiting_consumer import NAMES_PER_STEP, WaitingConsumer

SLICE_STEPS: Final = 4_000
"""Number of steps after which ``add_candidates`` returns."""
_NO_PATTERNS: Final = SharedPatterns()


class WaitingPatterns:
    """The sets of patterns of the waiting consumers, and the names that were compared with them."""

    def __init__(self) -> None:
        self.by_consumer: dict[WaitingConsumer, PatternSet] = {}
        """The patterns of each consumer, in order of arrival."""
        self._shared = SharedPatterns()
        self._of_principals: dict[str, SharedPatterns] = {}
        """The patterns of each principal; callers without a principal are left out."""
        self._principals: dict[WaitingConsumer, str] = {}
        self._names: Sequence[str] = ()
        """The names of all tubes, when the last consumer was added."""
        self._existing: frozenset[str] = frozenset()
        """The names in ``_names``."""
        self._compared: frozenset[str] = frozenset()
        """Names of these that were compared with all patterns, or that are candidates."""
        self._created: set[str] = set()
        """Further names that were compared with all patterns."""
        self._candidates: dict[WaitingConsumer, list[str]] = {}
        """For consumers that are not added to all of their tubes yet, the names to compare."""

    def add(
        self,
        consumer: WaitingConsumer,
        patterns: PatternSet,
        names: Sequence[str],
        awaited: Iterable[str],
    ) -> None:
        """Add a consumer that waits with some patterns.

        Args:
            consumer: the consumer.
            patterns: its patterns.
            names: the names of all tubes, in order.
            awaited: further names on which consumers wait, for example of tubes to be created.
        """
        if names is not self._names:
            self._names, self._existing = names, frozenset(names)
            self._compared = (self._compared | self._created) & self._existing
        if not self.by_consumer:
            self._compared = self._existing
        self._created.clear()
        self.by_consumer[consumer] = patterns
        self._shared.add(patterns)
        principal = consumer.profile.principal
        if principal:
            self._principals[consumer] = principal
            self._of_principals.setdefault(principal, SharedPatterns()).add(patterns)
        self._candidates[consumer] = [
            *(
                name
                for span in patterns.candidates(names)
                for name in names[span.start : span.stop]
            ),
            *(name for name in awaited if name not in self._existing),
        ]

    def candidates_of(self, consumer: WaitingConsumer) -> int:
        """Return the number of tubes that the patterns of a consumer were not compared with yet."""
        return len(self._candidates.get(consumer, ()))

    def remove(self, consumer: WaitingConsumer) -> None:
        """Remove a consumer, if it waits with patterns."""
        self._candidates.pop(consumer, None)
        patterns = self.by_consumer.pop(consumer, None)
        if patterns is None:
            return
        self._shared.remove(patterns)
        principal = self._principals.pop(consumer, "")
        if principal:
            own = self._of_principals[principal]
            own.remove(patterns)
            if not own:
                del self._of_principals[principal]

    def steps_with(self, patterns: PatternSet, principal: str) -> tuple[int, int]:
        """Return how many steps a new tube takes if a consumer waits with these patterns, too.

        Returns:
            The steps for the patterns of all consumers, and for those of the principal; 0 for the
            empty principal.
        """
        own = self._of_principals.get(principal, _NO_PATTERNS).steps_with(patterns)
        return self._shared.steps_with(patterns), own if principal else 0

    def add_candidates(
        self,
        consumer: WaitingConsumer,
        add_to: Callable[[WaitingConsumer, str], None],
    ) -> bool:
        """Call ``add_to`` with tubes that the patterns of a consumer match.

        Args:
            consumer: the consumer.
            add_to: adds the consumer to a tube.

        Returns:
            Whether candidates are left for another call.
        """
        candidates = self._candidates.pop(consumer, [])
        steps = 0
        for place, name in enumerate(candidates):
            if steps >= SLICE_STEPS:
                self._candidates[consumer] = candidates[place:]
                return True
            patterns = self.by_consumer[consumer]
            steps += patterns.steps_max
            if consumer.allows(name) and patterns.matches(name):
                steps += 1
                add_to(consumer, name)
        return False

    def is_new(self, name: str) -> bool:
        """Return whether a tube must be compared with all patterns."""
        return name not in self._compared and name not in self._created

    @property
    def compare_steps(self) -> int:
        """Number of steps of claims that ``compare`` takes, at most."""
        return self._shared.steps // NAMES_PER_STEP + len(self.by_consumer)

    def compare(self, name: str) -> Sequence[WaitingConsumer]:
        """Return the consumers with a pattern that matches a new tube, in order of arrival."""
        if not self.by_consumer:
            return ()
        self._created.add(name)
        # Many consumers share one set of patterns, because they have the same sources.
        matching = {patterns for patterns in self._shared if patterns.matches(name)}
        return [
            consumer
            for consumer, patterns in (self.by_consumer.items() if matching else ())
            if patterns in matching and consumer.allows(name)
        ]
