"""The changes that the how-to pages describe are patches that apply to this tree and work.

A patch leaves out what is generated: the stubs of the contract, and the golden files.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs.documents import ROOT
from tests.tidy.sources import project_files

PAGES = ROOT / "docs" / "how-to"
PARTS = {
    *("service", "replication", "clients", "proto", "tests", "tools", "docs"),
    *("pyproject.toml", "RELEASE"),
}
"""Folders and files that the tests of a patch read."""
CHECKS = {
    "add-an-option": (
        "tests/service/queue/operations/test_kick_paused.py",
        "tests/service/queue/store/test_golden_records.py",
    ),
    "add-a-command": (
        "tests/service/queue/operations/test_reset_attempts.py",
        "tests/service/entries",
    ),
}
"""Tests of each patch, by page."""
CHECKS_OF_ALL = (
    "tests/golden",
    "tests/service/command_codecs",
    "tests/service/queue/operations/test_registry.py",
    "tests/docs/test_upgrading_page.py",
)
RENEW = (
    "renew the patch in a git worktree: `git apply -3 {patch}`, "
    "resolve the conflicts, `git add -A`, "
    "`git -c diff.suppressBlankEmpty=true diff HEAD -- . ':!tests/golden' ':!*_pb2.*'`"
)
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def patch_of(page):
    return PAGES / "patches" / f"{page}.patch"


@pytest.mark.parametrize("page", CHECKS)
def test_each_change_on_a_page_is_a_part_of_its_patch(page):
    blocks = DIFF.findall((PAGES / f"{page}.md").read_text())
    patch = patch_of(page).read_text()
    assert blocks
    assert [block for block in blocks if block not in patch] == []


@pytest.mark.real_time
@pytest.mark.parametrize("page", CHECKS)
def test_a_patch_applies_and_its_change_works(page, tmp_path):
    for path in project_files():
        name = path.relative_to(ROOT)
        if name.parts[0] in PARTS:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, tmp_path / name)
    patch = patch_of(page)
    applied = run("git", "apply", patch, cwd=tmp_path)
    assert applied == "", RENEW.format(patch=patch.relative_to(ROOT))
    assert run("make", "--silent", "setup-proto", cwd=ROOT) == ""
    generator = ROOT / ".venv-proto" / "bin" / "python"
    assert run(generator, "-m", "tools.stubs", cwd=tmp_path) == ""
    assert run(sys.executable, "-m", "tests.golden", cwd=tmp_path) == ""
    tests = (*CHECKS[page], *CHECKS_OF_ALL)
    assert run(sys.executable, "-m", "pytest", "-q", *tests, cwd=tmp_path) == ""


def run(*command, cwd):
    """Run a command on the code in a folder; return its output if the command fails."""
    roots = ("service", "replication", "clients/python/src", ".")
    path = os.pathsep.join(str(cwd / root) for root in roots)
    own = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**own, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    output = f"{done.stdout[-4_000:]}{done.stderr[-4_000:]}exit status {done.returncode}"
    return output if done.returncode else ""
