"""The phases of a node: the table and nothing else."""

import itertools

import pytest

from taskraft_service.leader.roles import PHASES, Phase, PhaseEvent, RoleChangeImpossible, Roles


def roles_in(phase):
    """Return roles in a phase, by the shortest way."""
    for length in range(6):
        for way in itertools.product(PhaseEvent, repeat=length):
            roles = Roles()
            try:
                for happening in way:
                    roles.happen(happening)
            except RoleChangeImpossible:
                continue
            if roles.phase is phase:
                return roles
    raise AssertionError(f"{phase} cannot be reached")


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("happening", PhaseEvent)
def test_a_phase_knows_the_moves_of_the_table_and_no_others(phase, happening):
    roles = roles_in(phase)
    if (phase, happening) in PHASES:
        assert roles.happen(happening) is PHASES[phase, happening]
        assert roles.phase is PHASES[phase, happening]
    else:
        with pytest.raises(RoleChangeImpossible):
            roles.happen(happening)
        assert roles.phase is phase


def test_only_a_running_leader_serves():
    assert [phase for phase in Phase if roles_in(phase).serves] == [Phase.RUNNING]


def test_listeners_hear_of_changes_only():
    roles = roles_in(Phase.ENDING)
    heard = []
    roles.listen(heard.append)
    roles.happen(PhaseEvent.DEPOSED)
    roles.happen(PhaseEvent.SETTLED)
    assert heard == [Phase.WAITING]
