"""One small file decides atomically which database is in use."""

import shutil

import pytest

from taskraft_service.storage import directory as state_directory
from taskraft_service.storage.directory import (
    RELEASED,
    StateDirectory,
    StateForeign,
    StateMissing,
    copies_of,
    put_back,
    release_copies,
    set_aside,
)


def make(place):
    place.mkdir(exist_ok=True)
    (place / "CURRENT").write_text("something")


def test_a_switch_makes_the_new_database_the_current_one(tmp_path):
    directory = StateDirectory(tmp_path, "c", 1)
    old = directory.current
    make(old)
    fresh = directory.fresh()
    make(fresh)
    assert StateDirectory(tmp_path, "c", 1).current == old
    assert not fresh.exists(), "a database that was never current is removed at the next start"
    fresh = directory.fresh()
    make(fresh)
    directory.switch()
    assert directory.current == fresh
    assert StateDirectory(tmp_path, "c", 1).current == fresh
    assert not old.exists()


@pytest.mark.parametrize("identity", [("other", 1), ("c", 2)])
def test_the_state_of_another_member_is_refused(tmp_path, identity):
    make(StateDirectory(tmp_path, "c", 1).current)
    with pytest.raises(StateForeign):
        StateDirectory(tmp_path, *identity)
    assert StateDirectory(tmp_path, "c", 1).current.exists()


@pytest.mark.parametrize("content", ["{", "", "taskraft current 1 00000000\n{}"])
def test_an_unreadable_pointer_is_refused(tmp_path, content):
    StateDirectory(tmp_path, "c", 1)
    (tmp_path / "current").write_text(content)
    with pytest.raises(StateMissing):
        StateDirectory(tmp_path, "c", 1)


def test_a_flipped_bit_anywhere_in_the_pointer_is_detected(tmp_path):
    StateDirectory(tmp_path, "c", 1)
    pointer = tmp_path / "current"
    whole = pointer.read_bytes()
    for at in range(len(whole)):
        pointer.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((StateForeign, StateMissing)):
            StateDirectory(tmp_path, "c", 1)


def test_a_database_without_a_pointer_is_refused(tmp_path):
    make(StateDirectory(tmp_path, "c", 1).current)
    (tmp_path / "current").unlink()
    with pytest.raises(StateMissing, match="current is missing although"):
        StateDirectory(tmp_path, "c", 1)


def test_a_missing_current_database_is_refused(tmp_path):
    StateDirectory(tmp_path, "c", 1).current.rmdir()
    with pytest.raises(StateMissing, match="00000001 is missing"):
        StateDirectory(tmp_path, "c", 1)


def test_a_crash_before_the_first_pointer_does_not_prevent_a_start(tmp_path):
    (tmp_path / "00000001").mkdir()
    (tmp_path / "current.new").write_text("half")
    assert StateDirectory(tmp_path, "c", 1).current == tmp_path / "00000001"


def test_frozen_states_left_by_a_crash_are_removed(tmp_path):
    make(StateDirectory(tmp_path, "c", 1).outgoing())
    StateDirectory(tmp_path, "c", 1)
    assert not (tmp_path / "outgoing").exists()


def test_the_new_pointer_is_durable_before_the_old_database_is_removed(tmp_path, monkeypatch):
    """After a kill the page cache may hold a pointer that a power loss reverts."""
    old = StateDirectory(tmp_path, "c", 1)
    make(old.current)
    make(old.fresh())
    old.switch()
    done = []
    monkeypatch.setattr(state_directory, "sync_directory", done.append)
    monkeypatch.setattr(shutil, "rmtree", done.append)
    StateDirectory(tmp_path, "c", 1)
    assert done == [tmp_path, tmp_path / "00000001"]


def test_a_new_directory_is_durable_before_it_has_files(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(state_directory, "sync_directory", synced.append)
    StateDirectory(tmp_path / "state", "c", 1)
    assert synced == [tmp_path, tmp_path / "state"]


def test_only_a_database_that_is_not_current_is_removed(tmp_path):
    directory = StateDirectory(tmp_path, "c", 1)
    make(directory.current)
    make(directory.fresh())
    with pytest.raises(AssertionError):
        directory.discard(directory.current)
    directory.discard(tmp_path / "00000002")
    assert not (tmp_path / "00000002").exists()
    assert directory.current.exists()


def test_remains_of_an_earlier_attempt_are_deleted(tmp_path):
    directory = StateDirectory(tmp_path, "c", 1)
    make(directory.fresh())
    assert not directory.fresh().exists()


def test_each_frozen_state_has_its_own_folder(tmp_path):
    directory = StateDirectory(tmp_path, "c", 1)
    places = [directory.outgoing() for _ in range(3)]
    assert [place.name for place in places] == ["00000001", "00000002", "00000003"]
    assert {place.parent for place in places} == {tmp_path / "outgoing"}
    assert (tmp_path / "outgoing").is_dir()


@pytest.mark.shows_fault(
    "copies",
    "the new state is damaged before a comparison has proven it",
    "keeps both damaged copies",
)
def test_a_damaged_copy_stays_until_it_is_released(tmp_path):
    state = tmp_path / "state"

    def damage(name):
        make(state)
        (state / name).touch()
        return set_aside(state)

    first, second = damage("a"), damage("b")
    assert (first.name, second.name) == ("state.damaged", "state.damaged-2")
    assert not state.exists()
    (tmp_path / "state.damaged.tar").touch()  # of an operator
    assert sorted(release_copies(state)) == [first, second]
    assert release_copies(state) == []
    third = damage("c")
    assert third == first
    assert (third / "c").exists()
    assert not second.exists()
    assert (tmp_path / "state.damaged.tar").exists()


def test_a_released_copy_can_be_put_back(tmp_path):
    """Otherwise setting the other directory aside would delete the copy."""
    state = tmp_path / "state"
    make(state)
    (state / "copy").touch()
    copy = set_aside(state)
    release_copies(state)
    make(state)
    (state / "unusable").touch()
    put_back(copy, state)
    assert (state / "copy").exists()
    assert not (state / RELEASED).exists(), "it would be deleted when it is set aside again"
    (other,) = copies_of(state)
    assert (other / "unusable").exists()


def test_a_copy_is_put_back_to_an_empty_place(tmp_path):
    """The process ended after the other directory was set aside."""
    state = tmp_path / "state"
    make(state)
    copy = set_aside(state)
    put_back(copy, state)
    assert (state / "CURRENT").exists()
    assert copies_of(state) == []
