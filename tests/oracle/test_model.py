"""The model of random traces gives the answers of the recorded program."""

from pathlib import Path

import pytest

from tests.oracle.comparison import event_differences, outcome_differences
from tests.oracle.model import Model
from tests.oracle.trace import read_trace, traces_below

RECORDED = Path(__file__).parents[2].parent / "shared" / "oracle"
BEYOND = {"restart", "set_mode", "cfg", "state"}
"""Operations that the model does not cover; quirks and waiting puts are not covered either."""


def is_known(trace):
    return not trace.config.get("ttr") and not any(
        step.operation in BEYOND
        or step.quirk
        or (step.operation == "take" and step.handle is None and step.arguments.get("timeout") != 0)
        or (step.handle and step.operation == "put")
        for step in trace.steps
    )


def known_traces():
    traces = [read_trace(path) for path in traces_below(RECORDED)]
    known = [pytest.param(one, id=one.name) for one in traces if is_known(one)]
    reason = pytest.mark.skip(reason=f"{RECORDED} is not here")
    return known or [pytest.param(None, marks=reason, id="absent")]


@pytest.mark.parametrize("trace", known_traces())
def test_the_model_gives_the_recorded_answers(trace):
    model = Model()
    got = [
        model.play(step.session, step.operation, step.arguments, step.handle)
        for step in trace.steps
    ]
    differences = [
        f"{step}: {difference}"
        for step, outcome in zip(trace.steps, got, strict=True)
        for difference in outcome_differences(step.outcome, outcome)
    ]
    assert differences + event_differences(trace.steps, got, ()) == []
