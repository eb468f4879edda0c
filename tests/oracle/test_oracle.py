"""The service gives the answers of tarantool/queue, if the recorded traces are present."""

import random
import re
from pathlib import Path

import pytest

from tests.oracle.pool import replay_all
from tests.oracle.replay import DIVERGES
from tests.oracle.sequences import write_random_traces
from tests.oracle.trace import traces_below

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
RECORDED = ROOT.parent / "shared" / "oracle"
OWN = Path(__file__).parent / "traces"


def paths_of(directory):
    paths = traces_below(directory)
    if paths:
        return [param_of(path) for path in paths]
    missing = pytest.mark.skip(reason=f"{directory} is not here")
    return [pytest.param(directory, marks=missing, id="absent")]


def param_of(path):
    return pytest.param(path, id=f"{path.parent.name}/{path.stem}")


@pytest.fixture(scope="module")
def differences():
    """Differences of all traces, replayed concurrently because they mainly sleep."""
    found = {}
    replay_all(traces_below(RECORDED) + traces_below(OWN), found.__setitem__)
    return found


@pytest.mark.parametrize("path", paths_of(RECORDED))
def test_the_service_gives_the_answers_of_a_recorded_trace(path, differences):
    assert differences[path] == []


@pytest.mark.parametrize("path", paths_of(OWN))
def test_the_service_gives_the_answers_of_our_own_trace(path, differences):
    assert differences[path] == []


def test_the_service_answers_random_traces_like_the_model(tmp_path):
    fresh = random.SystemRandom().randrange(1 << 32)
    paths = write_random_traces(tmp_path / "random", (1, 2, fresh), ("plain", "waiters"))
    found = {}
    replay_all(paths, found.__setitem__)
    assert {path.stem: lines for path, lines in found.items() if lines} == {}
    assert len(found) == len(paths) == 6


def test_the_documentation_gives_a_reason_for_each_divergence_and_no_other():
    text = (ROOT / "docs" / "divergence.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| .+ \| .+ \| .+ \|$", text, re.MULTILINE)) == DIVERGES
