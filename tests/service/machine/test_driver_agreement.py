"""Members whose tube drivers fail: a majority quarantines the tube, a minority stops."""

import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.types import Entry, EntryKind, LogIndex, Term
from taskraft_replication.errors import MessageMalformed
from taskraft_service.clock.beacon import ClockBeacon, decode_beacon
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.sessions import STARTUP
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.entries.log_entry import encode_entry
from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.machine.driver_agreement import DriverAgreement, JoinedBeacons
from taskraft_service.machine.failed_drivers import DriverDiffers
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.put import PutResult
from taskraft_service.storage.directory import StateDirectory
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.stubs.log.v1 import beacon_pb2, log_pb2
from tests.service.queue.entities.test_tube_driver import POISON, Failing, Newest

MIB = 1 << 20
POISONED = 4
"""Index of the entry for which a failing driver fails."""


def put(payload):
    request = pb.PutTasksRequest(tube="t", tasks=[task_pb2.TaskSpec(payload=payload)])
    return encode_leader_command(PUT, request)


def entry(index, *encoded):
    return Entry(Term(1), LogIndex(index), encode_entry(1_000 + index, encoded))


def log():
    tube = tube_service_pb2.Tube(
        name="t", kind=tube_service_pb2.Tube.CUSTOM, driver="newest", driver_version=3
    )
    startup = log_pb2.Startup(member_id=1, feed_id="f", feed_partitions=1)
    return [
        Entry(Term(1), LogIndex(1)),
        entry(2, encode_leader_command(STARTUP, startup)),
        entry(3, encode_leader_command(CREATE_TUBE, tube_service_pb2.CreateTubeRequest(tube=tube))),
        entry(POISONED, put(POISON)),
        entry(5, put(b"later")),
    ]


class Member:
    """A state machine with a driver, and its view of the group."""

    def __init__(self, place, member_id, driver, voters=(1, 2, 3)):
        self.place = place
        self.member_id = member_id
        self.driver = driver
        self.voters = voters
        self.lead_term = 0
        self.open()

    def open(self):
        self.machine = QueueMachine(
            StateDirectory(self.place, "c", self.member_id),
            lambda path: RocksStore(path, MIB, MIB),
            Limits(),
            CollectPolicy(1, 1_000),
            lambda: 0,
            {"newest": self.driver},
        )
        self.agreement = DriverAgreement(self.member_id, self, self.machine)

    def has_quorum(self, members):
        return 2 * len({*members} & {*self.voters}) > len(self.voters)

    def apply_log(self, upto=9):
        """Apply the entries that can be applied; return the results by index."""
        results = {}
        while not self.machine.waits_for_members():
            entries = [one for one in log()[:upto] if one.index > self.machine.applied_index]
            if not entries:
                break
            for applied in self.machine.apply(entries):
                results[applied.index] = applied.results
        return results

    def restart(self):
        self.machine.close()
        self.open()


@pytest.fixture
def members(tmp_path):
    made = []

    def make(*drivers):
        voters = tuple(range(1, len(drivers) + 1))
        made.extend(
            Member(tmp_path / str(number), number, driver, voters)
            for number, driver in zip(voters, drivers, strict=True)
        )
        made[0].lead_term = 1
        return made

    yield make
    for member in made:
        member.machine.abandon()


def exchange(leader, *followers):
    """Send one heartbeat to each follower, and its reply."""
    for follower in followers:
        follower.agreement.received(leader.member_id, leader.agreement.make())
        leader.agreement.received(follower.member_id, follower.agreement.make())


def rounds(leader, *followers):
    for _ in range(3):
        exchange(leader, *followers)


def bad():
    return Failing("place")


def test_a_driver_that_fails_on_all_members_quarantines_the_tube_alike(members):
    one, two, three = members(bad(), bad(), bad())
    for member in (one, two, three):
        assert [*member.apply_log()] == [1, 2, 3], "nobody gets the result of the put yet"
        assert member.machine.applied_index == POISONED - 1
    rounds(one, two, three)
    for member in (one, two, three):
        results = member.apply_log()
        assert isinstance(results[POISONED][0], PutResult)
        assert results[5][0].reason.name == "TUBE_QUARANTINED"
    assert one.machine.queue.digest() == two.machine.queue.digest() == three.machine.queue.digest()


def test_two_voters_decide_while_the_third_is_away(members):
    one, two, three = members(bad(), bad(), bad())
    one.apply_log()
    two.apply_log()
    rounds(one, two)
    assert 5 in one.apply_log()
    assert 5 in two.apply_log()
    three.apply_log()
    rounds(one, two, three)
    assert 5 in three.apply_log()


def test_the_only_voter_decides_alone_once_it_leads(members):
    (one,) = members(bad())
    one.lead_term = 0
    assert POISONED not in one.apply_log()
    one.lead_term = 1
    assert 5 in one.apply_log()


@pytest.mark.parametrize("odd", [0, 1])
def test_a_member_alone_with_a_failing_driver_stops_and_the_others_serve(members, odd):
    drivers = [Newest(), Newest(), Newest()]
    drivers[odd] = bad()
    all_members = members(*drivers)
    leader, *followers = all_members
    results = [member.apply_log() for member in all_members]
    assert [5 in each for each in results].count(True) == 2
    with pytest.raises(DriverDiffers, match="failed on this node, but not on a majority"):
        rounds(leader, *followers)
    # After a restart the member replays the entry, and stops again.
    all_members[odd].restart()
    assert all_members[odd].machine.queue.quarantined_tubes() == [], "nothing became durable"


@pytest.mark.parametrize("odd", [0, 2])
def test_a_member_whose_driver_alone_works_stops(members, odd):
    drivers = [bad(), bad(), bad()]
    drivers[odd] = Newest()
    all_members = members(*drivers)
    leader, *followers = all_members
    for member in all_members:
        member.apply_log()
    with pytest.raises(DriverDiffers, match="not in the same way on this node"):
        rounds(leader, *followers)


def test_a_member_that_applies_the_entry_later_and_differs_stops(members):
    one, two, three = members(bad(), bad(), Newest())
    three.apply_log(upto=POISONED - 1)
    one.apply_log()
    two.apply_log()
    rounds(one, two, three)
    assert 5 in one.apply_log()
    assert 5 in two.apply_log()
    three.apply_log()
    with pytest.raises(DriverDiffers):
        rounds(one, two, three)


def test_a_new_leader_that_differs_learns_of_it_from_the_others(members):
    one, two, three = members(bad(), bad(), Newest())
    three.apply_log(upto=POISONED - 1)
    one.apply_log()
    two.apply_log()
    rounds(one, two)
    one.apply_log()
    two.apply_log()
    one.lead_term, three.lead_term = 0, 2
    three.apply_log()
    with pytest.raises(DriverDiffers):
        rounds(three, one, two)


def test_a_minority_never_decides(members):
    one, two, _three = members(bad(), Newest(), bad())
    one.apply_log()
    two.apply_log()
    rounds(one, two)
    assert one.machine.waits_for_members()


def test_the_quarantine_is_durable_only_once_it_is_confirmed(members):
    one, two, three = members(bad(), bad(), bad())
    one.apply_log()
    one.machine.collect()
    one.restart()
    assert one.machine.applied_index < POISONED
    for member in (one, two, three):
        member.apply_log()
    rounds(one, two, three)
    one.apply_log()
    one.restart()
    assert one.machine.queue.quarantined_tubes() == ["t"]
    assert not one.machine.waits_for_members()


def test_a_replayed_entry_is_confirmed_by_members_that_have_passed_it(members):
    one, two, three = members(bad(), bad(), bad())
    three.apply_log(upto=POISONED - 1)
    for member in (one, two):
        member.apply_log()
    rounds(one, two)
    for member in (one, two):
        member.apply_log()
        member.restart()
    one.lead_term, two.lead_term = 0, 2
    three.apply_log()
    rounds(two, one, three)
    assert 5 in three.apply_log()


def test_a_membership_entry_is_applied_and_the_next_entry_waits(members):
    (one,) = members(bad())
    one.lead_term = 0
    one.apply_log(upto=3)
    member_entry = Entry(Term(1), LogIndex(POISONED), b"members", EntryKind.CONF_CHANGE_V2)
    assert [each.index for each in one.machine.apply([member_entry])] == [POISONED]


def test_members_without_failures_add_nothing_to_the_beacons_of_the_clocks(members):
    one, two, _three = members(Newest(), Newest(), Newest())
    one.apply_log()
    assert one.agreement.make() == b""
    two.agreement.received(1, b"")
    assert two.agreement.make() == b""


def test_the_ballot_travels_in_one_beacon_with_the_clocks(members):
    one, two, _three = members(bad(), bad(), bad())
    one.apply_log()
    clocks = ClockBeacon(7, 3, 5, -9)

    class Clocks:
        def make(self):
            return clocks.encode()

        def received(self, sender, beacon):
            assert (sender, decode_beacon(beacon)) == (1, clocks)

    beacon = JoinedBeacons(Clocks(), one.agreement).make()
    assert beacon_pb2.ClockBeacon.FromString(beacon).drivers.held_index == POISONED
    JoinedBeacons(Clocks(), two.agreement).received(1, beacon)
    assert len(beacon) < 256


def test_bytes_that_are_no_beacon_are_refused(members):
    (one,) = members(bad())
    with pytest.raises(MessageMalformed):
        one.agreement.received(2, b"\xff")
