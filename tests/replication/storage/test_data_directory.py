"""One process locks a data directory; other processes get an error of one line."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

import pytest

from taskraft_replication.errors import DirectoryLocked, DirectoryUnwritable
from taskraft_replication.storage import data_directory
from taskraft_replication.storage.data_directory import DataDirectory


def test_a_directory_is_created_with_its_parents_each_name_durable(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(data_directory, "sync_directory", synced.append)
    claimed = DataDirectory(tmp_path / "a" / "b")
    assert claimed.path.is_dir()
    assert synced == [tmp_path, tmp_path / "a"]
    claimed.release()


def test_a_second_process_learns_the_holder_of_the_directory(tmp_path):
    claimed = DataDirectory(tmp_path)
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()} holds the lock"):
        DataDirectory(tmp_path)
    claimed.release()
    DataDirectory(tmp_path).release()


def test_the_lock_file_names_only_the_last_holder(tmp_path):
    (tmp_path / "lock").write_text("98765432109\n")
    claimed = DataDirectory(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    claimed.release()


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(DirectoryUnwritable, match=r"data cannot be written: File exists"):
        DataDirectory(tmp_path / "data")


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    opened = []

    def fail(descriptor, _):
        opened.append(descriptor)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(DirectoryUnwritable, match="cannot be written: No locks available"):
        DataDirectory(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def modes(path):
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in (path, *path.iterdir())}


def older_directory(path, mode, *foreign):
    """Make the data directory of a node that gave others access."""
    for name in ("raft-0", "state", *foreign):
        (path / name).mkdir(parents=True)
        (path / name).chmod(0o755)
    (path / "lock").touch()
    (path / "lock").chmod(0o644)
    path.chmod(mode)
    return path


def test_a_new_directory_is_for_its_owner_alone(tmp_path):
    DataDirectory(tmp_path / "data").release()
    assert modes(tmp_path / "data")["data"] == 0o700


def test_a_wider_directory_is_narrowed_with_its_entries(tmp_path):
    path = older_directory(tmp_path / "data", 0o775)
    DataDirectory(path).release()
    assert modes(path) == {"data": 0o700, "raft-0": 0o700, "state": 0o700, "lock": 0o600}


def test_foreign_entries_and_their_directory_keep_their_modes(tmp_path):
    path = older_directory(tmp_path / "data", 0o755, "home")
    DataDirectory(path).release()
    assert modes(path) == {
        "data": 0o755,
        "home": 0o755,
        "raft-0": 0o700,
        "state": 0o700,
        "lock": 0o600,
    }


@pytest.mark.parametrize(
    ("mode", "is_in_group", "is_usable"),
    [(0o2775, True, True), (0o2775, False, False), (0o2777, True, False), (0o755, False, True)],
)
def test_a_directory_of_another_user_must_not_be_writable_by_others(
    tmp_path, monkeypatch, mode, is_in_group, is_usable
):
    """The root of a Kubernetes volume belongs to root and to the group of the pod."""
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    groups = [path.stat().st_gid] if is_in_group else []
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(os, "getegid", lambda: path.stat().st_gid + 1)
    monkeypatch.setattr(os, "getgroups", lambda: groups)
    if is_usable:
        DataDirectory(path).release()
    else:
        with pytest.raises(DirectoryUnwritable, match="other users can write data directory"):
            DataDirectory(path)
    assert modes(path)["data"] == mode
