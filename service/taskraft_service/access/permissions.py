"""Evaluate the grants of a principal: roles on patterns of tube names.

Groups and schedules share the name space of tubes: a producer for "billing.*" may create the group
"billing.2026", but no group outside the pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from taskraft_service.languages.patterns import PatternSet

ALL_TUBES: Final = "*"
"""Scope of a permission: all existing and future tubes."""
ANY_TUBE: Final = ""
"""Scope of a permission: at least one tube."""


class Verb(Enum):
    """A permission on a tube, group or schedule."""

    PUT = "put"
    TAKE = "take"
    """Take tasks and settle their leases."""
    READ = "read"
    """Read tasks, options, statistics and the change feed."""
    MANAGE = "manage"
    """Create, change, truncate and drop tubes, and change tasks of other callers."""


ROLES: Final[Mapping[str, frozenset[Verb]]] = {
    "producer": frozenset({Verb.PUT}),
    "consumer": frozenset({Verb.TAKE}),
    "reader": frozenset({Verb.READ}),
    "admin": frozenset(Verb),
}
"""Permissions of each role. An admin on all tubes ("*") may also change the cluster."""


@dataclass(slots=True, frozen=True)
class Grant:
    """A role on all tubes whose names match one of the patterns."""

    role: str
    tubes: Sequence[str]


class Permissions:
    """The union of the grants of one principal.

    Immutable.
    """

    def __init__(self, grants: Sequence[Grant]) -> None:
        self.grants: Final = tuple(grants)
        patterns: dict[Verb, list[str]] = {}
        for grant in grants:
            for verb in ROLES[grant.role]:
                patterns.setdefault(verb, []).extend(grant.tubes)
        self._patterns: Final = {verb: PatternSet(tubes) for verb, tubes in patterns.items()}

    def allow(self, verb: Verb, name: str) -> bool:
        """Return whether the grants cover a permission on a tube, ``ALL_TUBES`` or ``ANY_TUBE``."""
        patterns = self._patterns.get(verb)
        return patterns is not None and (name == ANY_TUBE or patterns.matches(name))
