"""A group begins when all its founders have met, and no founder takes another one's place."""

from collections.abc import Mapping
from types import SimpleNamespace

from taskraft_replication.core.types import ConfState, MemberId, MemberInfo
from taskraft_replication.membership.roster import roster_of
from taskraft_replication.node.bootstrap import ClusterBootstrap
from taskraft_replication.storage.metadata import NOBODY

ONE, TWO, THREE = map(MemberId, (1, 2, 3))


def storage_of(
    *directories: str, is_at_its_beginning: bool = True, met: Mapping[int, str] = NOBODY
) -> SimpleNamespace:
    """A storage of member 1, with what it knows of the directories of the members.

    ``met``: who was met in an earlier life.
    """
    infos = [
        MemberInfo(MemberId(number), f"m{number}", directory_id=directory)
        for number, directory in enumerate(directories, start=1)
    ]
    known = ConfState((ONE, TWO, THREE), roster=roster_of(infos))
    return SimpleNamespace(
        is_at_its_beginning=is_at_its_beginning,
        directory_id="d1",
        met=met,
        membership_at=lambda index: {1: known}[index],
    )


def directories(founding: ClusterBootstrap) -> list[str]:
    return [info.directory_id for info in founding.roster.members]


def test_the_last_founder_that_is_met_completes_the_group():
    founding = ClusterBootstrap(ONE, storage_of("", "", ""))
    assert founding.missing == (2, 3)
    assert not founding.met(THREE, "d3")
    assert not founding.is_complete
    assert founding.missing == (2,)
    assert founding.met(TWO, "d2")
    assert founding.is_complete
    assert directories(founding) == ["d1", "d2", "d3"]


def test_what_a_founder_said_last_counts_until_all_are_known():
    founding = ClusterBootstrap(ONE, storage_of("", "", ""))
    founding.met(TWO, "wiped since")
    assert not founding.met(TWO, "d2")
    assert founding.met(THREE, "d3")
    assert not founding.met(TWO, "another")
    assert directories(founding) == ["d1", "d2", "d3"]


def test_who_does_not_name_a_directory_is_not_met():
    founding = ClusterBootstrap(ONE, storage_of("", "", ""))
    founding.met(TWO, "d2")
    assert not founding.met(THREE, "")
    assert founding.missing == (3,)


def test_a_group_of_one_is_complete_at_once():
    founding = ClusterBootstrap(ONE, storage_of(""))
    assert founding.is_complete
    assert directories(founding) == ["d1"]


def test_founders_that_are_known_durably_need_not_be_met_again():
    founding = ClusterBootstrap(ONE, storage_of("d1", "d2", "d3"))
    assert founding.is_complete
    assert not founding.met(TWO, "another")
    assert directories(founding) == ["d1", "d2", "d3"]


def test_a_group_that_was_founded_long_ago_asks_for_nobody():
    founding = ClusterBootstrap(ONE, storage_of("", "", "", is_at_its_beginning=False))
    assert founding.is_complete
    assert founding.missing == ()


def test_who_was_met_in_an_earlier_life_counts_when_another_takes_part():
    founding = ClusterBootstrap(ONE, storage_of("", "", "", met={TWO: "d2", THREE: "d3"}))
    assert not founding.is_complete
    assert founding.missing == (2, 3), "nothing is lost by waiting for them"
    assert founding.others_are_running()
    assert founding.is_complete
    assert directories(founding) == ["d1", "d2", "d3"]
    assert not founding.others_are_running(), "once"


def test_who_was_never_met_is_missing_whoever_takes_part():
    founding = ClusterBootstrap(ONE, storage_of("", "", "", met={TWO: "d2"}))
    assert not founding.others_are_running()
    assert not founding.is_complete
    assert founding.missing == (2, 3)
    founding.met(THREE, "d3")
    assert founding.missing == (2,)
    assert founding.others_are_running()


def test_a_directory_of_this_life_outweighs_one_of_an_earlier_life():
    founding = ClusterBootstrap(ONE, storage_of("", "", "", met={TWO: "wiped since", THREE: "d3"}))
    founding.met(TWO, "d2")
    assert founding.directories == {1: "d1", 2: "d2", 3: "d3"}
    assert founding.others_are_running()
    assert directories(founding) == ["d1", "d2", "d3"]
