"""Decide when the cluster version is raised; the version is part of the replicated state.

The leader plans a raise as soon as all members, voters and learners, speak a higher version. After
the hold the leader raises the version. Until then, members can return to the previous release. The
plan is replicated, so a change of leader does not restart the hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft_service.queue.values import value
from taskraft_service.versions import FORMATS, LOWEST, ClusterVersion, Formats, VersionRange

HOLD_MS: Final = 24 * 3_600_000
"""Default of the hold: cluster time between the plan and the raise."""


@value
class ClusterVersionState:
    """The cluster version in force, the planned one (0: none), and the time of the plan."""

    version: ClusterVersion = LOWEST
    planned: int = 0
    planned_at_ms: int = 0

    @property
    def formats(self) -> Formats:
        """The formats to write while this version is in force."""
        return FORMATS[self.version]


@value
class RaiseRules:
    """Conditions for the next raise, set by an operator or by the state.

    ``version_max`` 0: the version is not pinned. ``is_finalized``: an operator ends the hold.
    ``is_empty``: the cluster has no tubes, so there is nothing to return to.
    """

    hold_ms: int = HOLD_MS
    version_max: int = 0
    is_finalized: bool = False
    is_empty: bool = False


@value
class RaiseDecision:
    """The version that must be in force, and the version that must be planned (0: none).

    ``blockers``: the causes that prevent a higher version, each as a part of a sentence.
    """

    version: int
    planned: int
    blockers: tuple[str, ...] = ()


def decide_raise(
    state: ClusterVersionState,
    members: Mapping[str, VersionRange | None],
    rules: RaiseRules,
    now_ms: int,
) -> RaiseDecision:
    """Return which cluster version must be in force and which must be planned.

    Args:
        state: the replicated versions.
        members: by name, the versions that each member speaks; None: the member does not answer.
        rules: settings and commands of the operator.
        now_ms: the cluster time.
    """
    silent = [f"{name} does not answer" for name, spoken in members.items() if spoken is None]
    known = {name: spoken for name, spoken in members.items() if spoken is not None}
    newest = max((spoken.highest for spoken in known.values()), default=state.version)
    target = min((spoken.highest for spoken in known.values()), default=state.version)
    behind = [
        f"{name} speaks {spoken}" for name, spoken in known.items() if spoken.highest < newest
    ]
    pinned = []
    if rules.version_max and newest > max(rules.version_max, state.version):
        pinned = [f"the setting cluster_version_max is {rules.version_max}"]
        target = min(target, rules.version_max)
    newer = newest > state.version
    if silent or target <= state.version:
        blockers = (*silent, *behind, *pinned) if newer else ()
        return RaiseDecision(state.version, 0, blockers)
    left_ms = rules.hold_ms
    if state.planned == target:
        left_ms = max(state.planned_at_ms + rules.hold_ms - now_ms, 0)
    if rules.is_finalized or rules.is_empty or (state.planned == target and not left_ms):
        return RaiseDecision(target, 0, (*behind, *pinned))
    waits = f"the hold ends in {left_ms} ms; `taskraft cluster upgrade` ends it now"
    return RaiseDecision(state.version, target, (*behind, *pinned, waits))
