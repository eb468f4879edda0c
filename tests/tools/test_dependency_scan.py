"""The scan of dependencies: what it covers, and rows for findings and for scans that cannot run."""

import os
import sys

import pytest

from tools import dependency_scan
from tools.dependency_scan import ROOT, Row, Scan, main, result_of, scans

pytestmark = pytest.mark.real_time


@pytest.fixture
def scanner(tmp_path, monkeypatch):
    """Return a function that installs a scanner, which prints a text and ends with a status."""

    def install(text, status):
        program = tmp_path / "scanner"
        program.write_text(f"#!{sys.executable}\nprint({text!r})\nraise SystemExit({status})\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return Scan("list", ("scanner",), tmp_path)

    return install


def test_every_locked_list_and_every_go_module_is_scanned():
    subjects = {scan.subject for scan in scans()}
    assert {f"constraints/{path.name}" for path in (ROOT / "constraints").glob("*.txt")} < subjects
    assert {"edge/Cargo.lock", "bench/load/go.mod", "examples/go/go.mod"} < subjects
    assert all((ROOT / subject).is_file() for subject in subjects)


@pytest.mark.parametrize(
    ("text", "status", "result"),
    [
        ("No known vulnerabilities found", 0, "passed"),
        ("Found 2 known vulnerabilities in 1 package", 1, "FAILED"),
        ("error: 1 vulnerability found!", 1, "FAILED"),
        ("Your code is affected by 3 vulnerabilities from 1 module.", 3, "FAILED"),
        ("Dependency not found and could not be audited: x", 0, "not run"),
        ("error: could not resolve host", 1, "not run"),
    ],
)
def test_the_result_of_a_scan(scanner, text, status, result):
    assert result_of(scanner(text, status)).result == result


def test_a_scan_that_cannot_run_says_why(scanner):
    row = result_of(scanner("error: could not resolve host", 1))
    assert row == Row("list", "not run", "error: could not resolve host")
    missing = Scan("list", ("no-such-scanner",))
    assert result_of(missing) == Row("list", "not run", "not installed: no-such-scanner")


@pytest.mark.parametrize(("result", "status"), [("FAILED", 1), ("not run", 0), ("passed", 0)])
def test_only_a_finding_fails_the_run(monkeypatch, capsys, result, status):
    monkeypatch.setattr(dependency_scan, "scans", lambda: [Scan("a", ()), Scan("b", ())])
    monkeypatch.setattr(dependency_scan, "result_of", lambda scan: Row(scan.subject, result))
    assert main() == status
    counts = {"FAILED": "2 failed, 0 not run", "not run": "0 failed, 2 not run"}
    assert capsys.readouterr().out.endswith(
        f"2 scans: {counts.get(result, '0 failed, 0 not run')}\n"
    )
