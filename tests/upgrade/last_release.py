"""Take the server of the last release out of the history of this repository."""

import subprocess
import tarfile

import pytest

from tests.docs.documents import ROOT

PARTS = ("service", "replication", "clients/python/src")
"""Folders of Python code that a node imports."""


def last_release():
    """Return the commit of the last release; skip the test if the history lacks it."""
    name = ROOT / "RELEASE"
    if not name.exists():
        pytest.skip("there is no release yet")
    commit = name.read_text().strip()
    found = git("cat-file", "-e", f"{commit}^{{commit}}", check=False)
    if found.returncode:
        pytest.skip(f"the history of this clone lacks the release {commit}")
    return commit


def released_build(commit, folder):
    """Write the server of a commit into ``folder``; return the environment that starts it."""
    folder.mkdir()
    archive = folder / "release.tar"
    git("archive", f"--output={archive}", commit, *PARTS)
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return {"PYTHONPATH": ":".join(str(folder / part) for part in PARTS)}


def git(*arguments, check=True):
    """Run git in this repository."""
    return subprocess.run(["git", "-C", ROOT, *arguments], check=check, capture_output=True)
