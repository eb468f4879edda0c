"""Wheels of a release are used only if their digests are those that were published."""

import pytest

from tests.upgrade.last_release import VARIABLE, checked_wheels, release_wheels, released_build
from tools.release.wheels import write_sums


@pytest.fixture
def folder(tmp_path):
    """Return a folder with one published file."""
    (tmp_path / "taskraft-1.2.3-py3-none-any.whl").write_bytes(b"published")
    write_sums(tmp_path)
    return tmp_path


def test_the_folder_of_published_wheels_is_taken(folder, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(folder))
    assert release_wheels(folder / "unused") == folder


def test_a_changed_a_missing_and_an_unlisted_wheel_are_refused(folder):
    (wheel,) = folder.glob("*.whl")
    wheel.write_bytes(b"changed")
    with pytest.raises(AssertionError, match="differ from SHA256SUMS"):
        checked_wheels(folder)
    wheel.unlink()
    with pytest.raises(AssertionError, match="differ from SHA256SUMS"):
        checked_wheels(folder)
    wheel.write_bytes(b"published")
    assert checked_wheels(folder) == folder
    (folder / "other.whl").write_bytes(b"")
    with pytest.raises(AssertionError, match="differ from SHA256SUMS"):
        checked_wheels(folder)


def test_wheels_without_a_server_are_refused(folder, tmp_path):
    with pytest.raises(AssertionError, match="lacks the wheels of the client and the server"):
        released_build(folder, tmp_path / "installed")
