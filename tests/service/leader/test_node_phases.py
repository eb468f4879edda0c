"""A node changes its phase only as the table of transitions allows."""

import itertools

import pytest

from taskraft_service.leader.node_phases import (
    PHASE_TRANSITIONS,
    NodePhase,
    PhaseEvent,
    PhaseMachine,
    PhaseTransitionInvalid,
)


def roles_in(phase):
    """Return the phase machine of a node in the given phase, reached with the fewest events."""
    for length in range(6):
        for way in itertools.product(PhaseEvent, repeat=length):
            phases = PhaseMachine()
            try:
                for happening in way:
                    phases.apply(happening)
            except PhaseTransitionInvalid:
                continue
            if phases.phase is phase:
                return phases
    raise AssertionError(f"{phase} cannot be reached")


@pytest.mark.parametrize("phase", NodePhase)
@pytest.mark.parametrize("happening", PhaseEvent)
def test_a_phase_allows_only_the_events_of_the_table(phase, happening):
    phases = roles_in(phase)
    if (phase, happening) in PHASE_TRANSITIONS:
        assert phases.apply(happening) is PHASE_TRANSITIONS[phase, happening]
        assert phases.phase is PHASE_TRANSITIONS[phase, happening]
    else:
        with pytest.raises(PhaseTransitionInvalid):
            phases.apply(happening)
        assert phases.phase is phase


def test_only_a_running_leader_serves():
    assert [phase for phase in NodePhase if roles_in(phase).serves] == [NodePhase.RUNNING]


def test_listeners_are_called_only_for_changes():
    phases = roles_in(NodePhase.ENDING)
    heard = []
    phases.listen(heard.append)
    phases.apply(PhaseEvent.DEPOSED)
    phases.apply(PhaseEvent.SETTLED)
    assert heard == [NodePhase.WAITING]
