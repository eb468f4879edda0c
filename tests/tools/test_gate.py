"""The gate: the checks of the committed HEAD, on a fresh clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.gate import COMPILED_MAX, cargo_variables, clean_environment

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def checkout(tmp_path):
    """Return a repository with one commit, whose checks a test writes."""
    folder = tmp_path / "work" / "main"
    folder.mkdir(parents=True)
    (tmp_path / "work" / "shared").mkdir()
    (tmp_path / "work" / "shared" / "note").write_text("shared")
    git(folder, "init", "--quiet")
    return folder


def git(folder, *arguments):
    names = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    command = ["git", "-C", folder, *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run_gate(checkout, script):
    """Commit the script of CI and run the gate; return the process and the stamp of the commit."""
    (checkout / ".ci").mkdir()
    (checkout / ".ci" / "run").write_text(f"#!/bin/sh\n{script}\n")
    (checkout / ".ci" / "run").chmod(0o755)
    git(checkout, "add", ".ci")
    git(checkout, "commit", "--quiet", "--message", "first")
    done = subprocess.run(
        [sys.executable, "-m", "tools.gate"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(checkout.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, checkout / "var" / "gate" / git(checkout, "rev-parse", "HEAD")


def test_a_commit_that_passes_gets_a_stamp_with_its_unstable_tests(checkout):
    (checkout / "not-committed").write_text("")
    done, stamp = run_gate(
        checkout,
        'test "$CI" = true && test ! -e not-committed && test "$(cat ../shared/note)" = shared\n'
        'test "$?" = 0 && printf "UNSTABLE: a: late\\n7 passed, 0 failed, 0 skipped\\n"',
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("gate of ")
    assert "the clone lacks uncommitted changes" in done.stdout
    assert stamp.read_text().splitlines()[1:] == [
        "UNSTABLE: a: late",
        "7 passed, 0 failed, 0 skipped",
    ]


def test_a_commit_that_fails_gets_no_stamp_and_its_failures_are_printed(checkout):
    done, stamp = run_gate(checkout, 'echo "WRONG: a: no"; exit 2')
    assert done.returncode == 1
    assert "WRONG: a: no\nRED: status 2" in done.stdout
    assert not stamp.exists()


def test_the_environment_has_no_path_of_the_checkout():
    given = {
        "PATH": "/work/main/.venv/bin:/work/main-2:/usr/bin",
        "PYTHONPATH": "/work/main",
        "VIRTUAL_ENV": "/elsewhere",
        "HOME": "/root",
    }
    assert clean_environment(given, Path("/work/main")) == {
        "PATH": "/work/main-2:/usr/bin",
        "HOME": "/root",
        "CI": "true",
    }


def test_each_version_of_the_edge_has_a_folder_of_cargo_that_the_next_run_uses_again(tmp_path):
    (first,) = {cargo_variables(tmp_path, "first")["CARGO_TARGET_DIR"] for _ in range(2)}
    Path(first, "compiled").write_text("")
    os.utime(first, (0, 0))
    others = [cargo_variables(tmp_path, f"{number}")["CARGO_TARGET_DIR"] for number in range(3)]
    assert len({first, *others}) == 4
    assert not Path(first).exists()
    assert all(Path(other).is_dir() for other in others[-COMPILED_MAX:])


def test_the_sources_of_the_edge_name_the_folder_of_cargo(checkout):
    (checkout / "edge").mkdir()
    (checkout / "edge" / "lib.rs").write_text("")
    git(checkout, "add", "edge")
    done, _ = run_gate(checkout, 'echo "WRONG: $CARGO_TARGET_DIR"; exit 2')
    tree = git(checkout, "rev-parse", "HEAD:edge")
    assert f"WRONG: {checkout}/var/gate-cargo/{tree}\n" in done.stdout
