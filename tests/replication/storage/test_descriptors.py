"""Files can be opened when the process has no descriptor left."""

import errno
import os
import resource
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from taskraft_replication.storage import filesystem
from taskraft_replication.storage.descriptors import DescriptorReserve
from taskraft_replication.storage.filesystem import DiskFileSystem

COUNT = 3


@pytest.fixture
def reserve(monkeypatch):
    one = DescriptorReserve(COUNT)
    monkeypatch.setattr(filesystem, "RESERVE", one)
    yield one
    for descriptor in one._spare:
        os.close(descriptor)


@contextmanager
def no_descriptor_left():
    """Use up all descriptors of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 5, before[1]))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_files_are_opened_from_the_reserve_until_it_is_empty(tmp_path, reserve):
    files = DiskFileSystem(tmp_path)
    files.create("first").close()
    assert len(reserve) == COUNT
    with no_descriptor_left():
        opened = [files.create(f"file{number}") for number in range(COUNT)]
        assert len(reserve) == 0
        with pytest.raises(OSError, match="Too many open files") as error:
            files.create("one too many")
        assert error.value.errno == errno.EMFILE
        for each in opened:
            each.close()
        files.sync_directory(".")
        assert files.read("first") == b""
    files.create("later").close()
    assert len(reserve) == COUNT, "the reserve is filled again"


def test_other_errors_do_not_touch_the_reserve(tmp_path, reserve):
    files = DiskFileSystem(tmp_path)
    files.create("first").close()
    with pytest.raises(FileNotFoundError):
        files.open("missing")
    assert len(reserve) == COUNT
