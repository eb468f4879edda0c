"""The file system of the folders of tests."""

import pytest

from tests.gate import __main__ as gate


@pytest.fixture(autouse=True)
def memory(monkeypatch, tmp_path):
    """Return a folder that the gate takes for the file system in memory."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(gate, "MEMORY", tmp_path)
    monkeypatch.setattr(gate, "MEMORY_BYTES_MIN", 1)
    return tmp_path


def test_the_folders_of_tests_are_in_memory(memory):
    assert gate.folder_of_tests() == memory


def test_the_folder_that_the_caller_has_chosen_is_used(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert gate.folder_of_tests() is None


def test_a_file_system_in_memory_without_room_is_not_used(monkeypatch):
    monkeypatch.setattr(gate, "MEMORY_BYTES_MIN", 1 << 62)
    assert gate.folder_of_tests() is None


def test_a_system_without_a_file_system_in_memory_uses_its_default(monkeypatch, tmp_path):
    monkeypatch.setattr(gate, "MEMORY", tmp_path / "missing")
    assert gate.folder_of_tests() is None
