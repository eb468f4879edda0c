"""What is counted without a fault: elections, and how long puts took."""

import math
from types import SimpleNamespace

import pytest

from tests.drill.calm_phases import (
    P99_MAX_MS,
    QUIET_P99_MAX_MS,
    CalmPhase,
    CalmPhases,
    Strain,
    Waits,
    strain_of,
    waits_ms,
)
from tests.drill.drill_run import breaches_of
from tests.drill.history import Operation
from tests.drill.hostile import Findings

MS = 1_000_000
PHASE = CalmPhase(100 * MS, 200 * MS)


def put(invoked_ms, ended_ms=math.inf, outcome="ok"):
    return Operation("p", "put", {}, invoked_ms * MS, ended_ms * MS, outcome)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (put(99, 120), []),
        (put(100, 120), [20]),
        (put(150, 260), [50]),
        (put(150, outcome="info"), [50]),
        (put(150, 151, "fail"), []),
        (put(200, 201), []),
    ],
)
def test_only_puts_that_begin_without_a_fault_count_until_the_next_fault(one, expected):
    assert waits_ms([one], [PHASE]) == expected


def node(term):
    state = None if term is None else SimpleNamespace(state=SimpleNamespace(term=term))
    return SimpleNamespace(state=lambda: state)


@pytest.mark.parametrize(
    ("before", "after", "elections"),
    [
        ([3, 3, 2], [3, 3, 3], 0),
        ([3, 3, 3], [3, 4, 3], 1),
        ([3, None, 3], [5, 5, None], 2),
        ([None], [5], 0),
        ([5], [None], 0),
    ],
)
def test_each_higher_term_at_the_end_of_a_phase_is_an_election(before, after, elections):
    terms = [before, after]
    calm = CalmPhases(SimpleNamespace(running=lambda: map(node, terms.pop(0))))
    calm.begin()
    calm.end()
    assert [phase.elections for phase in calm.phases] == [elections]


def test_the_puts_before_the_hostile_caller_are_told_apart():
    phases = [PHASE, CalmPhase(300 * MS, 400 * MS, 1), CalmPhase(500 * MS, 600 * MS, 1)]
    puts = [put(110, 120), put(120, 130), put(310, 350), put(510, 550)]
    strain = strain_of(puts, phases)
    assert (strain.seconds, strain.elections) == (0.2, 2)
    assert strain.before == Waits(2, 10, 10, 10)
    assert strain.during == Waits(2, 40, 40, 40)
    assert str(strain.during) == "median 40, p99 40, longest 40 ms of 2 puts"


def strain(elections=0, p99=180, before=15, puts=300, puts_before=100):
    return Strain(9.0, elections, Waits(puts_before, 1, before, before), Waits(puts, 1, p99, 9_000))


@pytest.mark.parametrize(
    ("found", "breaches"),
    [
        (strain(), []),
        (strain(elections=1), ["1 elections without a fault"]),
        (strain(p99=P99_MAX_MS), []),
        (
            strain(p99=501),
            ["p99 of the puts of others 501 ms, maximum 500 ms; before the caller 15 ms"],
        ),
        (
            strain(p99=501, before=QUIET_P99_MAX_MS),
            ["p99 of the puts of others 501 ms, maximum 500 ms; before the caller 100 ms"],
        ),
        (strain(p99=9_000, before=101), []),
        (strain(puts=0, p99=0), ["no put of others to judge during the requests of the caller"]),
        (
            strain(puts_before=0, before=0),
            ["no put of others to judge before the requests of the caller"],
        ),
    ],
)
def test_elections_and_slow_puts_on_a_quiet_machine_fail_a_drill(found, breaches):
    assert [*breaches_of(Findings(), {"demanding": 1}, found)] == breaches


LIMITS = "goal 250 ms, maximum 500 ms"
UNJUDGED = "the maximum is not judged: p99 120 ms before the caller"


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (strain(p99=250), f"goal met: p99 of the puts of others 250 ms, {LIMITS}"),
        (strain(p99=280), f"goal NOT MET: p99 of the puts of others 280 ms, {LIMITS}"),
        (
            strain(p99=600, before=120),
            f"goal NOT MET: p99 of the puts of others 600 ms, {LIMITS}; {UNJUDGED}",
        ),
        (strain(puts=0, p99=0), f"goal NOT MET: p99 of the puts of others 0 ms, {LIMITS}"),
    ],
)
def test_a_line_of_the_drill_tells_whether_the_goal_is_met(found, line):
    assert found.goal_line == line


def test_a_hostile_caller_without_any_answer_shows_nothing():
    assert [*breaches_of(Findings(), {"stranger": 0}, None)] == ["no node answered the stranger"]
