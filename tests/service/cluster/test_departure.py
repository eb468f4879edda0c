"""A stopping node removes its member if its ordinal is not wanted, and in no other case."""

import asyncio
import os
from dataclasses import replace

import grpc
import pytest
from structlog.testing import capture_logs

from taskraft_replication.core.types import ConfState, MemberInfo, Roster
from taskraft_service.cluster import departure
from taskraft_service.cluster.departure import Departure
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.cluster.wanted_size import WantedSizeInvalid, excess_size
from taskraft_service.config.addresses import PeerAddress

OWN = MemberInfo(5, "taskraft-4", "four:1", "four:2", "d4")
OTHERS = (
    MemberInfo(1, "taskraft-0", "zero:1", "zero:2", "d0"),
    MemberInfo(2, "taskraft-1", "one:1", "one:2", "d1"),
)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
MEMBER_NEEDED = grpc.StatusCode.FAILED_PRECONDITION


next_turn = asyncio.sleep


class Refused(grpc.aio.AioRpcError):
    def __init__(self, code):
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")


class Members:
    """Answer the requests of a stopping node with the given status codes, then with success."""

    def __init__(self, monkeypatch, path, *codes, voters=(1, 2, 5), own=OWN, learners=()):
        self.codes, self.asked, self.requests, self.handed_over = list(codes), [], [], []
        self.rounds, self.rounds_max = 0, 100
        self.before_answer = lambda: None
        monkeypatch.setattr(departure, "send_remove_member", self.answer)
        monkeypatch.setattr(departure.asyncio, "sleep", self.pause)
        self.membership = ConfState(voters, learners, roster=Roster((*OTHERS, own)))
        self.departure = Departure(
            path,
            MemberIdentity(PeerAddress(5, own.name, "four:1", "four:2"), (), "d4"),
            lambda: self.membership,
            self.hand_over,
            None,
        )

    async def answer(self, address, request, _security):
        self.asked.append(address)
        self.requests.append((request.name, request.directory_id, request.request_id))
        self.before_answer()
        if self.codes:
            raise Refused(self.codes.pop(0))

    async def hand_over(self, to):
        self.handed_over.append(to)

    async def pause(self, _seconds):
        """End the time for leaving after ``rounds_max`` rounds."""
        self.rounds += 1
        if self.rounds == self.rounds_max:
            raise TimeoutError
        await next_turn(0)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "replicas"
    path.write_text("3\n")
    return path


async def test_a_node_asks_the_other_members_in_turn_until_one_removes_it(monkeypatch, file):
    members = Members(monkeypatch, file, UNAVAILABLE, MEMBER_NEEDED, UNAVAILABLE)
    with capture_logs() as logs:
        await members.departure.run()
    assert members.asked == ["zero:2", "one:2", "zero:2", "one:2"]
    assert members.handed_over == [1, 2], "a leader hands over to each member that stays in turn"
    assert logs[-1]["event"] == "the node has left its cluster"
    ((name, directory_id, request_id),) = set(members.requests)
    assert (name, directory_id) == ("taskraft-4", "d4"), "no later member of the name is removed"
    assert request_id


WRONG = ["0", "", "three", "-1", "+3", "3.0", "3 4", "0x3", "3_0", "3\0", "\u0663", "\ufeff3"]
HUGE = ["3" + " " * 64, "9" * 65, "3" + "\n" * 1_000_000 + "5"]


@pytest.mark.parametrize("text", [None, "5", "6", "9" * 64, *WRONG, *HUGE])
async def test_a_node_that_is_wanted_or_has_no_valid_number_stays(monkeypatch, file, text):
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    members = Members(monkeypatch, file)
    with capture_logs() as logs:
        await members.departure.run()
    assert members.asked == []
    is_wrong = text in {*WRONG, *HUGE}
    assert [each["event"] for each in logs] == ["the node stays a member"] * is_wrong


@pytest.mark.parametrize("text", ["3", "3 ", " 3\r\n", "03"])
async def test_blanks_around_the_number_do_not_matter(monkeypatch, file, text):
    file.write_text(text)
    members = Members(monkeypatch, file)
    await members.departure.run()
    assert members.asked == ["zero:2"]


@pytest.mark.parametrize("later", ["5", "five", "", None])
@pytest.mark.parametrize("requests", [1, 2, 3])
async def test_a_node_that_is_wanted_again_while_it_waits_asks_no_more(
    monkeypatch, file, later, requests
):
    """The kubelet replaces the folder of a ConfigMap by a symbolic link, as here."""
    first, second = file.parent / "first", file.parent / "second"
    for folder, text in ((first, "3"), (second, later)):
        folder.mkdir()
        if text is not None:
            (folder / "replicas").write_text(text)
    data = file.parent / "..data"
    data.symlink_to(first)

    def swap():
        if len(members.asked) == requests:
            (file.parent / "..new").symlink_to(second)
            (file.parent / "..new").rename(data)

    members = Members(monkeypatch, data / "replicas", *[UNAVAILABLE] * 10)
    members.before_answer = swap
    with capture_logs() as logs:
        await members.departure.run()
    assert len(members.asked) == requests
    assert logs[-1]["event"] == "the node stays a member"
    assert "advice" not in logs[-1]


@pytest.mark.parametrize("name", ["four", "taskraft-4a", "taskraft", "4"])
async def test_a_node_without_an_ordinal_stays(monkeypatch, file, name):
    members = Members(monkeypatch, file, own=replace(OWN, name=name))
    await members.departure.run()
    assert members.asked == []


async def test_a_learner_leaves_too(monkeypatch, file):
    members = Members(monkeypatch, file, voters=(1, 2), learners=(5,))
    await members.departure.run()
    assert members.asked == ["zero:2"]


async def test_a_node_that_learns_of_its_removal_needs_no_answer(monkeypatch, file):
    members = Members(monkeypatch, file, *[UNAVAILABLE] * 10)

    def remove():
        members.membership = ConfState((1, 2), roster=Roster(OTHERS, OWN.member))

    members.before_answer = remove
    with capture_logs() as logs:
        await members.departure.run()
    assert members.asked == ["zero:2", "one:2"]
    assert logs[-1]["event"] == "the node has left its cluster"


async def test_a_node_that_does_not_know_the_members_yet_says_so(monkeypatch, file):
    members = Members(monkeypatch, file)
    members.membership = ConfState()
    with capture_logs() as logs:
        await members.departure.run()
    assert logs[-1]["reason"] == "the node has not received the membership yet"


async def test_a_node_without_the_setting_stays(monkeypatch):
    members = Members(monkeypatch, None)
    await members.departure.run()
    assert members.asked == []


async def test_a_leader_does_not_hand_over_to_a_node_that_stops_too(monkeypatch, file):
    file.write_text("1")
    members = Members(monkeypatch, file, *[UNAVAILABLE] * 4)
    await members.departure.run()
    assert members.handed_over == [1, 1, 1]


async def test_a_member_that_is_removed_already_has_left(monkeypatch, file):
    members = Members(monkeypatch, file, grpc.StatusCode.NOT_FOUND)
    with capture_logs() as logs:
        await members.departure.run()
    assert logs[-1]["event"] == "the node has left its cluster"


@pytest.mark.parametrize(
    ("code", "asked"), [(grpc.StatusCode.PERMISSION_DENIED, 1), (MEMBER_NEEDED, 4)]
)
async def test_a_node_that_is_refused_stays_and_says_why(monkeypatch, file, code, asked):
    members = Members(monkeypatch, file, *[code] * 10)
    members.rounds_max = 2
    with capture_logs() as logs:
        await members.departure.run()
    assert len(members.asked) == asked
    assert logs[-1]["event"] == "the node stays a member"
    assert logs[-1]["wanted"] == 3
    assert logs[-1]["reason"].endswith(": no")
    assert "taskraft cluster remove" in logs[-1]["advice"]


async def test_a_member_that_does_not_answer_does_not_hide_the_reason(monkeypatch, file):
    members = Members(monkeypatch, file, UNAVAILABLE, MEMBER_NEEDED, UNAVAILABLE, UNAVAILABLE)
    members.rounds_max = 2
    with capture_logs() as logs:
        await members.departure.run()
    assert logs[-1]["reason"] == "one:2: no"


async def test_the_last_voter_stays_although_there_are_learners(monkeypatch, file):
    members = Members(monkeypatch, file, voters=(5,))
    with capture_logs() as logs:
        await members.departure.run()
    assert logs[-1]["reason"] == "no other member votes"
    assert members.asked == []


@pytest.mark.parametrize("ordinal", [2, 3, 11])
def test_the_nodes_with_ordinals_below_the_number_are_wanted(file, ordinal):
    assert excess_size(f"taskraft-{ordinal}", file) == (3 if ordinal >= 3 else None)


def make_loop(path):
    path.symlink_to(path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, make_loop])
def test_a_file_that_cannot_be_read_is_named(tmp_path, make):
    path = tmp_path / "replicas"
    make(path)
    with pytest.raises(WantedSizeInvalid, match=str(path)):
        excess_size("taskraft-4", path)


def test_a_link_to_nothing_is_no_file(tmp_path):
    (tmp_path / "replicas").symlink_to(tmp_path / "..data" / "replicas")
    assert excess_size("taskraft-4", tmp_path / "replicas") is None
