"""One process locks a data directory; other processes get an error of one line."""

from __future__ import annotations

import errno
import fcntl
import os

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
