"""Say what a principal may do: roles on patterns of names.

The names are those of tubes; groups and schedules have theirs in the same space, so a producer for
"billing.*" may make the group "billing.2026" and nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from taskraft_service.languages.patterns import TubePattern

ALL_TUBES: Final = "*"
"""As the name of a need: every tube there is or may be."""
ANY_TUBE: Final = ""
"""As the name of a need: some tube, whichever."""
CACHED_DECISIONS_MAX: Final = 10_000
"""Answers remembered for one principal; names come from requests, so they are not few by nature."""


class Verb(Enum):
    """What can be done to a tube."""

    PUT = "put"
    TAKE = "take"
    """Take tasks and settle the leases of them."""
    READ = "read"
    """See tasks, options, counts and the change feed."""
    MANAGE = "manage"
    """Make, change and empty tubes, and change tasks that others put or hold."""


ROLES: Final[Mapping[str, frozenset[Verb]]] = {
    "producer": frozenset({Verb.PUT}),
    "consumer": frozenset({Verb.TAKE}),
    "reader": frozenset({Verb.READ}),
    "admin": frozenset(Verb),
}
"""What each role may do. An admin everywhere ("*") may change the cluster as well."""


@dataclass(slots=True, frozen=True)
class Grant:
    """A role on all tubes whose names match one of the patterns."""

    role: str
    tubes: Sequence[str]


class Permissions:
    """What the grants of one principal add up to. Unchangeable; answers are remembered."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._patterns: dict[Verb, list[TubePattern]] = {}
        for grant in grants:
            for verb in ROLES[grant.role]:
                self._patterns.setdefault(verb, []).extend(map(TubePattern, grant.tubes))
        self._answers: dict[tuple[Verb, str], bool] = {}

    def allow(self, verb: Verb, name: str) -> bool:
        """Tell whether something may be done to a tube, ``ALL_TUBES`` or ``ANY_TUBE``."""
        known = self._answers.get((verb, name))
        if known is None:
            patterns = self._patterns.get(verb, ())
            known = any(name == ANY_TUBE or pattern.matches(name) for pattern in patterns)
            if len(self._answers) >= CACHED_DECISIONS_MAX:
                self._answers.clear()
            self._answers[verb, name] = known
        return known
