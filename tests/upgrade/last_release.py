"""Install the server of the last release from wheels, as a user does.

``TASKRAFT_TEST_RELEASE_WHEELS`` names a folder with the published wheels, for example
``var/release``. Without it, the wheels are built from the commit in the file RELEASE.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT
from tools.gate import clone
from tools.release.last_release import read_last_release
from tools.release.wheels import SUMS, build, digests, write_sums

VARIABLE = "TASKRAFT_TEST_RELEASE_WHEELS"
DISTRIBUTIONS = ("taskraft", "taskraft_server", "taskraft_edge")
"""Distributions that a node needs, or uses if they are there."""


def release_wheels(folder):
    """Return the folder with the wheels of the last release; skip the test if there are none.

    Args:
        folder: an empty folder for a clone and for wheels that are built.
    """
    if given := os.environ.get(VARIABLE):
        return checked_wheels(Path(given).absolute())
    release = read_last_release(ROOT)
    if release is None:
        pytest.skip(
            f"there is no release yet; {VARIABLE}=var/release takes the last `make release`"
        )
    exists = ("git", "-C", ROOT, "cat-file", "-e", f"{release.commit}^{{commit}}")
    if subprocess.run(exists, check=False, capture_output=True).returncode:
        pytest.skip(f"the history of this clone lacks the release {release.commit}")
    source = clone(ROOT, folder, commit=release.commit, with_shared=False)
    build(source, folder / "wheels", with_edge=False)
    write_sums(folder / "wheels")
    return checked_wheels(folder / "wheels")


def checked_wheels(folder):
    """Return a folder of wheels whose files have the digests of SHA256SUMS.

    Raises:
        AssertionError: a file was changed, is missing or is not listed.
    """
    lines = (folder / SUMS).read_text().splitlines()
    listed = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    assert digests(folder) == listed, f"the files of {folder} differ from {SUMS}"
    return folder


def released_build(wheels, folder):
    """Install the wheels of a server into ``folder``; return the environment that starts it."""
    chosen = [path for name in DISTRIBUTIONS for path in wheels.glob(f"{name}-*.whl")]
    assert len(chosen) >= 2, f"{wheels} lacks the wheels of the client and the server"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*pip, *options, *chosen], check=True)
    build = {"PYTHONPATH": str(folder)}
    place = "import taskraft_service; print(taskraft_service.__file__)"
    command = [sys.executable, "-c", place]
    # An editable installation of this tree must not hide the release.
    done = subprocess.run(command, env={**os.environ, **build}, check=True, capture_output=True)
    assert Path(done.stdout.decode().strip()).is_relative_to(folder), done.stdout
    return build
