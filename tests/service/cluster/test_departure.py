"""A stopping node removes its member if its ordinal is not wanted, and in no other case."""

import asyncio
from types import SimpleNamespace

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

    def __init__(self, monkeypatch, path, *codes, voters=(1, 2, 5)):
        self.codes, self.asked, self.requests, self.handed_over = list(codes), [], [], []
        monkeypatch.setattr(departure, "send_remove_member", self.answer)
        monkeypatch.setattr(departure.asyncio, "sleep", self.pause)
        self.departure = Departure(
            SimpleNamespace(node_name=OWN.name, replicas_file=path),
            MemberIdentity(PeerAddress(5, OWN.name, "four:1", "four:2"), (), "d4"),
            lambda: ConfState(voters, roster=Roster((*OTHERS, OWN))),
            self.hand_over,
            None,
        )

    async def answer(self, address, request, _security):
        self.asked.append(address)
        self.requests.append((request.name, request.request_id))
        if self.codes:
            raise Refused(self.codes.pop(0))

    async def hand_over(self, to):
        self.handed_over.append(to)

    async def pause(self, _seconds):
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
    ((name, request_id),) = set(members.requests)
    assert name == "taskraft-4"
    assert request_id


@pytest.mark.parametrize("text", [None, "5", "6", "0", "", "three", "-1", "3.0", "3 4"])
async def test_a_node_that_is_wanted_or_has_no_valid_number_stays(monkeypatch, file, text):
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    members = Members(monkeypatch, file)
    with capture_logs() as logs:
        await members.departure.run()
    assert members.asked == []
    assert bool(logs) == (text not in {None, "5", "6"}), "one line names a wrong file"


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


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, MEMBER_NEEDED])
async def test_a_node_that_is_refused_stays_and_says_why(monkeypatch, file, code):
    monkeypatch.setattr(departure, "LEAVE_SECONDS", 0)
    members = Members(monkeypatch, file, *[code] * 10)
    with capture_logs() as logs:
        await members.departure.run()
    assert logs[-1]["event"] == "the node stays a member"
    assert logs[-1]["wanted"] == 3
    assert "taskraft cluster remove" in logs[-1]["advice"]


async def test_the_last_voter_stays_although_there_are_learners(monkeypatch, file):
    members = Members(monkeypatch, file, voters=(5,))
    with capture_logs() as logs:
        await members.departure.run()
    assert logs[-1]["reason"] == "no other member votes"
    assert members.asked == []


@pytest.mark.parametrize("ordinal", [2, 3, 11])
def test_the_nodes_with_ordinals_below_the_number_are_wanted(file, ordinal):
    settings = SimpleNamespace(node_name=f"taskraft-{ordinal}", replicas_file=file)
    assert excess_size(settings) == (3 if ordinal >= 3 else None)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    settings = SimpleNamespace(node_name="taskraft-4", replicas_file=tmp_path)
    with pytest.raises(WantedSizeInvalid, match=str(tmp_path)):
        excess_size(settings)
