"""Check that a mutant is killed by its test, and that a trial leaves nothing behind."""

import os
import subprocess
import sys

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.trial import ROOT, open_workshop

pytestmark = pytest.mark.real_time

TEST = "tests/replication/driver/test_proposals.py::test_a_proposal_is_resolved_by_index_and_term"


def in_proposals(old, new):
    return Mutant(
        f"{old}-{new}",
        "replication/taskraft_replication/driver/proposals.py",
        "",
        f"{old}\n",
        f"{new}\n",
        "driver",
    )


def test_a_mutant_is_killed_by_the_failing_test_and_the_code_is_unchanged():
    path = ROOT / "replication/taskraft_replication/driver/proposals.py"
    text = path.read_text()
    broken = in_proposals("        if term != entry.term:", "        if False:")
    harmless = in_proposals("        if term != entry.term:", "        if entry.term != term:")
    nonsense = in_proposals("        if term != entry.term:", "        if nonsense:")
    with open_workshop(1) as workshop:
        assert not workshop.unchanged([TEST]).killer
        killers = {
            verdict.mutant.name: verdict.killer
            for verdict in workshop.verdicts([broken, harmless, nonsense], [lambda _: [[TEST]]])
        }
    assert path.read_text() == text
    assert killers == {broken.name: TEST, harmless.name: "", nonsense.name: TEST}


def test_a_killed_run_leaves_no_process_and_no_copy(tmp_path):
    words = ["--only", "proposal-by-index,proposals-off-by-one", "--workers", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants", *words],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("killed ")
        assert [*tmp_path.iterdir()]
        program.kill()
        # The worker keeps this pipe open while it lives.
        assert not program.stderr.read()
    assert not [*tmp_path.iterdir()]
