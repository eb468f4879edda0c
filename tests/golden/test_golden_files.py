"""Every version of every format stays readable, and no golden file changes."""

import subprocess

import pytest

from taskraft_service.versions import (
    ClusterVersion,
    FeedVersion,
    SnapshotFileVersion,
    SnapshotVersion,
    StateVersion,
)
from tests.golden.content import (
    read_feed,
    read_limits,
    read_log,
    read_snapshot,
    read_snapshot_file,
    read_state,
)
from tests.golden.digests import DIGESTS, FOLDER, digest_of, files, listed
from tools.release.last_release import read_last_release

ROOT = FOLDER.parent.parent
READERS = {"limits": read_limits, "log": read_log, "state": read_state, "feed": read_feed}
VERSIONS = {
    "limits": ClusterVersion,
    "log": ClusterVersion,
    "state": StateVersion,
    "feed": FeedVersion,
    "snapshot": SnapshotVersion,
    "snapshot_file": SnapshotFileVersion,
}


@pytest.mark.parametrize("name", sorted(files()))
def test_a_golden_file_is_read(name, tmp_path):
    text = (FOLDER / name).read_text()
    assert text, "an empty file proves nothing"
    if name.startswith("snapshot/"):
        read_snapshot(text, tmp_path)
    elif name.startswith("snapshot_file/"):
        read_snapshot_file(text, tmp_path)
    else:
        READERS[name.partition("/")[0]](text)


def test_each_version_has_a_golden_file():
    expected = {f"{name}/v{int(each)}" for name, kind in VERSIONS.items() for each in kind}
    assert {name.rpartition("/")[0] for name in files()} == expected, "run `make golden`"


def test_no_golden_file_is_changed_missing_or_unlisted():
    assert {name: digest_of(FOLDER / name) for name in files()} == listed(DIGESTS.read_text())


@pytest.mark.real_time
def test_the_list_of_digests_only_grows():
    """The list is compared with the last release, because a commit can rewrite what HEAD has."""
    release = read_last_release(ROOT)
    commit = release.commit if release else "HEAD"
    shown = subprocess.run(
        ("git", "show", f"{commit}:tests/golden/DIGESTS"),
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    if shown.returncode:
        pytest.skip(f"this clone lacks the golden files of {commit}")
    assert DIGESTS.read_text().startswith(shown.stdout), "an older golden file was changed"
