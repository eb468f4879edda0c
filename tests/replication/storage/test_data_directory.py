"""One process locks a data directory; others get an error of one line."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from taskraft_replication.errors import DirectoryLocked, DirectoryUnwritable
from taskraft_replication.storage import data_directory
from taskraft_replication.storage.data_directory import DataDirectory


def test_a_directory_is_made_with_its_parents_each_name_durable(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(data_directory, "sync_directory", synced.append)
    claimed = DataDirectory(tmp_path / "a" / "b")
    assert claimed.path.is_dir()
    assert synced == [tmp_path, tmp_path / "a"]
    claimed.release()


def test_a_second_claim_is_told_who_has_the_directory(tmp_path):
    claimed = DataDirectory(tmp_path)
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()} holds the lock"):
        DataDirectory(tmp_path)
    claimed.release()
    DataDirectory(tmp_path).release()


def test_the_holder_is_the_last_one_and_nothing_of_those_before(tmp_path):
    (tmp_path / "lock").write_text("98765432109\n")
    claimed = DataDirectory(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    claimed.release()


def test_a_directory_that_is_a_file_cannot_be_written(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(DirectoryUnwritable, match=r"data cannot be written: File exists"):
        DataDirectory(tmp_path / "data")


def test_a_disk_that_cannot_lock_says_so(tmp_path, monkeypatch):
    opened = []

    def fail(descriptor, _):
        opened.append(descriptor)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(DirectoryUnwritable, match="cannot be written: No locks available"):
        DataDirectory(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
