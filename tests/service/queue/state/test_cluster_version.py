"""Decisions about the cluster version: who blocks a raise, the hold, and the pin."""

from dataclasses import dataclass

import pytest

from taskraft_service.queue.state.cluster_version import HOLD_MS, RaiseRules, decide_raise
from taskraft_service.versions import VersionRange

OLD, NEW = VersionRange(1, 1), VersionRange(1, 2)


@dataclass
class State:
    """Stands for the replicated versions; later releases have versions above 1."""

    version: int = 1
    planned: int = 0
    planned_at_ms: int = 0


def test_nothing_is_planned_while_all_members_are_old():
    decision = decide_raise(State(), {"n1": OLD, "n2": OLD}, RaiseRules(), 0)
    assert (decision.version, decision.planned, decision.blockers) == (1, 0, ())


@pytest.mark.parametrize(
    ("spoken", "blocker"),
    [(OLD, "n2 speaks cluster version 1"), (None, "n2 does not answer")],
)
def test_a_member_that_is_old_or_silent_blocks_the_raise(spoken, blocker):
    members = {"n1": NEW, "n2": spoken}
    for is_finalized in (False, True):
        rules = RaiseRules(is_finalized=is_finalized)
        decision = decide_raise(State(1, 2, 5), members, rules, 5 + HOLD_MS)
        assert (decision.version, decision.planned) == (1, 0)
        assert decision.blockers == (blocker,)


def test_the_version_is_planned_then_raised_after_the_hold():
    members = {"n1": NEW, "n2": NEW}
    assert decide_raise(State(), members, RaiseRules(), 7).planned == 2
    planned = State(1, 2, 7)
    before = decide_raise(planned, members, RaiseRules(), 6 + HOLD_MS)
    assert (before.version, before.planned) == (1, 2)
    assert before.blockers == ("the hold ends in 1 ms; `taskraft cluster upgrade` ends it now",)
    after = decide_raise(planned, members, RaiseRules(), 7 + HOLD_MS)
    assert (after.version, after.planned, after.blockers) == (2, 0, ())


def test_a_command_ends_the_hold():
    decision = decide_raise(State(), {"n1": NEW}, RaiseRules(is_finalized=True), 0)
    assert (decision.version, decision.blockers) == (2, ())


def test_a_cluster_without_tubes_needs_no_hold():
    assert decide_raise(State(), {"n1": NEW}, RaiseRules(is_empty=True), 0).version == 2


def test_a_pinned_version_is_not_passed_even_by_a_command():
    rules = RaiseRules(version_max=1, is_finalized=True, is_empty=True)
    decision = decide_raise(State(), {"n1": NEW}, rules, 0)
    assert (decision.version, decision.planned) == (1, 0)
    assert decision.blockers == ("the setting cluster_version_max is 1",)


def test_another_target_begins_a_new_hold():
    newest = VersionRange(1, 3)
    decision = decide_raise(State(1, 2, 0), {"n1": newest}, RaiseRules(), HOLD_MS)
    assert (decision.version, decision.planned) == (1, 3)


def test_a_lower_version_is_never_chosen():
    assert decide_raise(State(version=2), {"n1": NEW, "n2": OLD}, RaiseRules(), 0).version == 2
