"""A group starts when all founders have connected, each with its own data directory."""

from collections.abc import Mapping
from types import SimpleNamespace

from taskraft_replication.core.types import ConfState, MemberId, MemberInfo
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node.bootstrap import FounderDirectories
from taskraft_replication.storage.metadata import NO_DIRECTORIES

ONE, TWO, THREE = map(MemberId, (1, 2, 3))


def storage_of(
    *directories: str,
    is_at_its_beginning: bool = True,
    founder_directories: Mapping[int, str] = NO_DIRECTORIES,
) -> SimpleNamespace:
    """Return a storage of member 1 that knows some directory ids.

    ``founder_directories``: directory ids that were stored before the last restart.
    """
    infos = [
        MemberInfo(MemberId(number), f"m{number}", directory_id=directory)
        for number, directory in enumerate(directories, start=1)
    ]
    known = ConfState((ONE, TWO, THREE), roster=roster_of(infos))
    return SimpleNamespace(
        directory_id="d1",
        founder_directories=founder_directories,
        memberships=SimpleNamespace(
            is_at_its_beginning=is_at_its_beginning, at=lambda index: {1: known}[index]
        ),
    )


def directories(bootstrap: FounderDirectories) -> list[str]:
    return [info.directory_id for info in bootstrap.roster.members]


def test_the_last_handshake_completes_the_group():
    bootstrap = FounderDirectories(ONE, storage_of("", "", ""))
    assert bootstrap.missing == (2, 3)
    assert not bootstrap.handshake_done(THREE, "d3")
    assert not bootstrap.is_complete
    assert bootstrap.missing == (2,)
    assert bootstrap.handshake_done(TWO, "d2")
    assert bootstrap.is_complete
    assert directories(bootstrap) == ["d1", "d2", "d3"]


def test_the_last_directory_of_a_founder_counts_until_all_are_known():
    bootstrap = FounderDirectories(ONE, storage_of("", "", ""))
    bootstrap.handshake_done(TWO, "wiped since")
    assert not bootstrap.handshake_done(TWO, "d2")
    assert bootstrap.handshake_done(THREE, "d3")
    assert not bootstrap.handshake_done(TWO, "another")
    assert directories(bootstrap) == ["d1", "d2", "d3"]


def test_a_founder_without_a_directory_id_is_missing():
    bootstrap = FounderDirectories(ONE, storage_of("", "", ""))
    bootstrap.handshake_done(TWO, "d2")
    assert not bootstrap.handshake_done(THREE, "")
    assert bootstrap.missing == (3,)


def test_a_group_of_one_is_complete_at_once():
    bootstrap = FounderDirectories(ONE, storage_of(""))
    assert bootstrap.is_complete
    assert directories(bootstrap) == ["d1"]


def test_founders_with_stored_directories_need_no_handshake():
    bootstrap = FounderDirectories(ONE, storage_of("d1", "d2", "d3"))
    assert bootstrap.is_complete
    assert not bootstrap.handshake_done(TWO, "another")
    assert directories(bootstrap) == ["d1", "d2", "d3"]


def test_a_group_that_has_started_waits_for_no_founder():
    bootstrap = FounderDirectories(ONE, storage_of("", "", "", is_at_its_beginning=False))
    assert bootstrap.is_complete
    assert bootstrap.missing == ()


def test_directories_from_before_a_restart_count_once_another_founder_runs():
    bootstrap = FounderDirectories(
        ONE, storage_of("", "", "", founder_directories={TWO: "d2", THREE: "d3"})
    )
    assert not bootstrap.is_complete
    assert bootstrap.missing == (2, 3), "the founders may still connect"
    assert bootstrap.others_are_running()
    assert bootstrap.is_complete
    assert directories(bootstrap) == ["d1", "d2", "d3"]
    assert not bootstrap.others_are_running(), "the second call changes nothing"


def test_a_founder_without_any_handshake_is_missing_even_if_another_runs():
    bootstrap = FounderDirectories(ONE, storage_of("", "", "", founder_directories={TWO: "d2"}))
    assert not bootstrap.others_are_running()
    assert not bootstrap.is_complete
    assert bootstrap.missing == (2, 3)
    bootstrap.handshake_done(THREE, "d3")
    assert bootstrap.missing == (2,)
    assert bootstrap.others_are_running()


def test_a_new_directory_replaces_one_from_before_a_restart():
    bootstrap = FounderDirectories(
        ONE, storage_of("", "", "", founder_directories={TWO: "wiped since", THREE: "d3"})
    )
    bootstrap.handshake_done(TWO, "d2")
    assert bootstrap.directories == {1: "d1", 2: "d2", 3: "d3"}
    assert bootstrap.others_are_running()
    assert directories(bootstrap) == ["d1", "d2", "d3"]
