"""The nightly run: parts that fail, pass or cannot run, and the Makefile's targets."""

import re
import sys
from pathlib import Path

import pytest

from tests.nightly import __main__ as nightly
from tests.nightly.__main__ import Part, main, parts

ROOT = Path(__file__).parent.parent.parent
MAKEFILE = "wrong:\n\t@echo reason; false\nright:\n\t@echo begun; echo 17 seeds\n"


@pytest.fixture
def run_parts(tmp_path, monkeypatch, capsys):
    """Return a function that runs parts of a small Makefile; it returns status and output."""

    def run(*given, only=()):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "Makefile").write_text(MAKEFILE)
        monkeypatch.setattr(nightly, "parts", lambda _: given)
        monkeypatch.setattr(sys, "argv", ["nightly", *only])
        return main(), capsys.readouterr().out

    return run


@pytest.mark.real_time
def test_a_failed_part_does_not_end_the_run(run_parts, tmp_path):
    status, output = run_parts(Part("first", ("wrong",)), Part("second", ("right",)))
    assert status == 1
    table = output.split("\n\n")[1].splitlines()
    assert re.fullmatch(r"first +FAILED +\d+\.\d  var/nightly/first.log: .*", table[1])
    assert re.fullmatch(r"second +passed +\d+\.\d  17 seeds", table[2])
    assert "reason" in (tmp_path / "var" / "nightly" / "first.log").read_text()


@pytest.mark.real_time
def test_only_the_chosen_parts_run(run_parts):
    given = (Part("first", ("wrong",)), Part("second", ("right",)))
    status, output = run_parts(*given, only=["second"])
    assert status == 0
    assert "first" not in output


def test_a_part_whose_program_is_missing_does_not_run(run_parts):
    status, output = run_parts(Part("first", ("wrong",), ("sh", "no-such-program")))
    assert status == 0
    assert "not run" in output
    assert "not installed: no-such-program" in output


def test_an_unknown_part_is_refused(run_parts, capsys):
    with pytest.raises(SystemExit):
        run_parts(Part("first", ("wrong",)), only=["frist"])
    assert "no such part: frist; the parts are first" in capsys.readouterr().err


def test_each_part_is_a_target_of_the_makefile_and_each_night_has_other_seeds():
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {part.goal[0] for part in parts(1)} <= set(targets)
    assert parts(1) != parts(2)
