"""The real file system: complete writes, allocated blocks, durable names, errors with names."""

from __future__ import annotations

import errno
import os

import pytest

from taskraft_replication.storage import filesystem
from taskraft_replication.storage.filesystem import DiskFileSystem, is_out_of_room


@pytest.fixture
def fs(tmp_path) -> DiskFileSystem:
    return DiskFileSystem(tmp_path / "data")


@pytest.fixture
def synced(monkeypatch, tmp_path) -> list[str]:
    """The synced directories, in order, as paths relative to the test's folder."""
    real, found = filesystem.sync_directory, []

    def sync(path):
        found.append(str(path.relative_to(tmp_path)))
        real(path)

    monkeypatch.setattr(filesystem, "sync_directory", sync)
    return found


def test_a_directory_is_created_with_its_parents_each_name_durable(fs, synced, tmp_path):
    fs.make_directory("raft-0/log")
    assert (tmp_path / "data/raft-0/log").is_dir()
    assert synced == ["data/raft-0", "data"]
    fs.make_directory("raft-0/log")
    assert synced == ["data/raft-0", "data"], "an existing directory needs no sync"


def test_a_file_is_written_completely_although_the_system_writes_in_parts(fs, monkeypatch):
    """A short write is legal; a signal or a nearly full disk causes it."""
    fs.make_directory("d")
    file, real = fs.create("d/f"), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda at, data, offset: real(at, data[:3], offset))
    file.write(5, b"0123456789")
    assert file.read(0, 100) == bytes(5) + b"0123456789"
    file.close()


def test_a_file_is_written_through_although_the_system_writes_in_parts(fs, monkeypatch):
    fs.make_directory("d")
    file, real = fs.create("d/f"), os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda at, parts, offset, flags: real(at, [parts[0][:3]], offset, flags)
    )
    synced, fdatasync = [], os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda at: synced.append(at) or fdatasync(at))
    file.write_through(5, b"0123456789")
    assert file.read(0, 100) == bytes(5) + b"0123456789"
    assert len(synced) == 1
    file.write_through(0, b"abc")
    assert file.read(0, 5) == b"abc" + bytes(2)
    assert len(synced) == 1, "one system call wrote all and made it durable"
    file.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_is_written_through_with_a_sync_where_one_call_cannot_do_both(fs, monkeypatch, code):
    fs.make_directory("d")
    file = fs.create("d/f")

    def refuse(*_):
        raise OSError(code, "not here")

    synced = []
    monkeypatch.setattr(os, "pwritev", refuse)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file.write_through(2, b"abc")
    assert file.read(0, 10) == bytes(2) + b"abc"
    assert len(synced) == 1
    file.close()


def test_an_error_of_a_write_through_names_the_file(fs, monkeypatch):
    fs.make_directory("d")
    file = fs.create("d/f")

    def fail(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(OSError, match=r"broken.*d/f"):
        file.write_through(0, b"abc")
    file.close()


def test_allocated_space_takes_its_blocks_and_reads_as_zeros(fs, tmp_path):
    fs.make_directory("d")
    file = fs.create("d/f")
    file.write(0, b"abc")
    file.allocate(1 << 16)
    found = (tmp_path / "data/d/f").stat()
    assert found.st_size == 1 << 16
    assert found.st_blocks * 512 >= 1 << 16
    assert file.read(0, 6) == b"abc" + bytes(3)
    file.truncate(2)
    assert file.read(0, 6) == b"ab"
    file.close()


def test_files_are_created_renamed_and_removed(fs):
    fs.make_directory("d")
    for name in ("b", "a"):
        file = fs.create(f"d/{name}")
        file.write(0, name.encode())
        file.sync()
        file.close()
    assert fs.names("d") == ["a", "b"]
    fs.rename("d/a", "d/b")
    assert (fs.exists("d/a"), fs.exists("d/b"), fs.read("d/b")) == (False, True, b"a")
    file = fs.open("d/b")
    file.write(1, b"!")
    file.close()
    assert fs.read("d/b") == b"a!"
    fs.create("d/b").close()
    assert fs.read("d/b") == b"", "the file was created again"
    fs.remove("d/b")
    fs.sync_directory("d")
    assert fs.names("d") == []


@pytest.mark.parametrize(
    ("call", "work"),
    [
        ("pread", lambda file: file.read(0, 1)),
        ("pwrite", lambda file: file.write(0, b"x")),
        ("fdatasync", lambda file: file.sync()),
        ("ftruncate", lambda file: file.truncate(0)),
        ("posix_fallocate", lambda file: file.allocate(1)),
    ],
)
def test_an_error_names_the_file(fs, monkeypatch, tmp_path, call, work):
    fs.make_directory("d")
    file = fs.create("d/f")

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input/output error") as failure:
        work(file)
    assert failure.value.filename == str(tmp_path / "data/d/f")
    file.close()


def test_a_directory_is_synced_and_an_error_names_it(fs, monkeypatch, tmp_path):
    fs.make_directory("d")

    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error") as failure:
        fs.sync_directory("d")
    assert failure.value.filename == str(tmp_path / "data/d")


def test_a_full_disk_has_its_own_error():
    full = [number for number in errno.errorcode if is_out_of_room(OSError(number, ""))]
    assert sorted(full) == sorted([errno.ENOSPC, errno.EDQUOT])


@pytest.mark.parametrize(
    ("system_call", "use"),
    [
        ("fdatasync", lambda file: file.sync()),
        ("ftruncate", lambda file: file.truncate(1)),
        ("posix_fallocate", lambda file: file.allocate(4096)),
        ("pwrite", lambda file: file.write(0, b"x")),
    ],
)
def test_a_failed_system_call_is_not_repeated(fs, monkeypatch, system_call, use):
    """After a failed fsync Linux marks the pages clean, so a second fsync would succeed wrongly."""
    fs.make_directory("d")
    file, calls = fs.create("d/f"), []

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, system_call, fail_once)
    with pytest.raises(OSError, match=r"Input/output error.*d/f"):
        use(file)
    assert len(calls) == 1
    monkeypatch.undo()
    file.close()
