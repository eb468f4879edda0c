"""The matrix of PySpark versions: which are accepted, and what counts as a failure."""

import subprocess

import pytest

from taskraft_pipeline import doctor
from taskraft_pipeline.spark_session import SparkUnsuitable, check_installation
from tests.pipeline import spark_versions
from tests.pipeline.spark_versions import MINORS, is_supported, refusal, result

CONNECT = "sc://127.0.0.1:1"


def test_the_matrix_has_supported_and_refused_versions_up_to_the_newest_supported_one():
    supported = [minor for minor in MINORS if is_supported(minor)]
    least, below = doctor.VERSIONS["pyspark"]
    assert supported == [(4, 2), (4, 3)]
    assert (supported[0], supported[-1]) == (least, (below[0], below[1] - 1))
    assert set(MINORS) - set(supported) == {(4, 0), (4, 1)}


def test_a_refusal_is_the_line_that_the_command_prints(monkeypatch):
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda _: "4.1.4")
    with pytest.raises(SparkUnsuitable) as caught:
        check_installation(CONNECT)
    assert refusal("4.1.4") == f"Error: {caught.value}"
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda _: "4.3.0")
    check_installation(CONNECT)


@pytest.fixture
def outputs(monkeypatch, tmp_path):
    """Return a list of statuses and outputs of the commands that a version runs, in order."""
    given = []

    def run(*command, seconds):
        status, output = given.pop(0)
        return subprocess.CompletedProcess(command, status, output)

    monkeypatch.setattr(spark_versions, "run", run)
    monkeypatch.setattr(spark_versions, "prepared", lambda _: tmp_path / "python")
    return given


def test_a_version_passes_only_if_it_reads_or_is_refused(outputs):
    outputs += [(0, "4.3.0\n"), (0, "log\nread 900 events\n")]
    assert result((4, 3)) == ("4.3.0 read 900 events", False)
    outputs += [(0, "4.3.0\n"), (1, "Traceback\nAssertionError\n")]
    assert result((4, 3)) == ("FAILED 4.3.0: AssertionError", True)
    outputs += [(0, "4.1.4\n"), (1, f"{refusal('4.1.4')}\n")]
    assert result((4, 1)) == ("4.1.4 refused", False)
    outputs += [(0, "4.1.4\n"), (1, f"Traceback\n{refusal('4.1.4')}\n")]
    assert result((4, 1)) == (f"FAILED 4.1.4 is not refused: {refusal('4.1.4')}", True)
    outputs += [(0, "4.1.4\n"), (0, f"{refusal('4.1.4')}\n")]
    assert result((4, 1))[1]
    assert outputs == []


def test_a_supported_version_that_pip_does_not_have_is_a_failure(monkeypatch):
    monkeypatch.setattr(spark_versions, "prepared", lambda _: None)
    assert result((4, 2)) == ("4.2 not available", True)
    assert result((4, 0)) == ("4.0 not available", False)
