"""Run short drills with the most common faults; ``make drill`` runs all drills for longer."""

import re
import shutil
from dataclasses import replace

import pytest

from tests.drill.drill_run import DrillRun
from tests.drill.drill_table import DRILLS, SHORT
from tests.drill.history_format import faults_of

pytestmark = pytest.mark.cluster


def told(history, violations):
    """Return the violations, and the lines of the history about the faults and their tasks.

    The file itself does not outlive a gate.
    """
    ids = {int(number) for one in violations for number in re.findall(r"task (\d+)", one.text)}
    names = ['"process":"nemesis"', *(f'"id":{number}{end}' for number in ids for end in ",}")]
    lines = history.read_text(encoding="utf-8").splitlines()
    return "\n".join(
        (*map(str, violations), *(line for line in lines if any(name in line for name in names)))
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the faults of disks")
@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        pytest.param("mixed", SHORT["mixed"]),
        pytest.param("partition", SHORT["partition"], marks=pytest.mark.nightly),
        pytest.param("hostile-principals", SHORT["hostile-principals"], marks=pytest.mark.nightly),
    ],
)
def test_a_short_drill_breaks_no_promise(name, seconds, tmp_path):
    drill = next(drill for drill in DRILLS if drill.name == name)
    history = tmp_path / "history.jsonl"
    result = DrillRun(replace(drill, seconds=seconds), tmp_path / "nodes", history, seed=1).run()
    violations = result.verdict.violations
    assert violations == (), told(history, violations)
    assert result.breaches == ()
    assert faults_of(history) == []
    assert result.faults > 0
    evidence = result.verdict.evidence
    assert min(evidence.puts, evidence.holds) > 50, "the drill tested too little"
