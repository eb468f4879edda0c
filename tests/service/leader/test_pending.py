"""Commands that wait for an entry, and the limits of their number and size."""

import asyncio
from dataclasses import replace

import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.selected_tasks import KICK
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.leader.command_submitter import (
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
)
from taskraft_service.leader.pending import PendingCommands
from taskraft_service.limits import COMMAND_BYTES_MAX, ENTRY_ITEMS_MAX
from tests.service.leader.test_proposer import LIMITS, command


class Leases:
    """A queue with ``count`` leases.

    ``ends`` says how many leases a command ends, by the session id of the command.
    """

    def __init__(self, count=0, **ends):
        self.count, self.ends = count, ends

    def leases_ended_by(self, command):
        return self.ends.get(command.session_ids[0], 0)

    def lease_count(self):
        return self.count


@pytest.fixture
async def pending():
    return PendingCommands(LIMITS, Leases(), asyncio.get_running_loop())


async def full(leases, limits=LIMITS):
    one = PendingCommands(limits, leases, asyncio.get_running_loop())
    for _ in range(limits.pending_commands):
        one.add(command("put"), None)
    with pytest.raises(LeaderOverloaded):
        one.add(command("put"), None)
    return one


async def test_commands_that_end_leases_exceed_the_limits_only_up_to_the_number_of_leases():
    leases = Leases(count=5, two=2, one=1)
    pending = await full(leases)
    for name in ("two", "two"):
        pending.add(command(name), None)
    with pytest.raises(LeaderOverloaded):
        pending.add(command("two"), None)
    pending.add(command("one"), None)
    with pytest.raises(LeaderOverloaded):
        pending.add(command("one"), None)
    while pending.line:
        pending.gather()
    assert pending._leases_beyond == pending._bytes == 0


async def test_a_command_that_ends_no_lease_is_refused_beyond_the_limits():
    pending = await full(Leases(count=5, settled=0))
    with pytest.raises(LeaderOverloaded):
        pending.add(command("settled"), None)


async def test_dropped_commands_free_their_leases():
    pending = await full(Leases(count=1, ack=1))
    lost = pending.add(command("ack"), None)
    pending.drop_all("leadership was lost")
    assert isinstance(lost.exception(), NotProposed)
    assert pending._leases_beyond == 0


async def test_settlements_beyond_the_limits_have_a_byte_limit_of_the_same_size():
    names = {letter * 1_900: 1 for letter in "ab"}
    pending = await full(Leases(count=9, **names))
    pending.add(command("a" * 1_900), None)
    with pytest.raises(LeaderOverloaded):
        pending.add(command("b" * 1_900), None)


async def test_a_command_that_the_leader_owes_is_never_refused():
    pending = await full(Leases())
    owed = replace(command("x" * 5_000), is_owed=True)
    for _ in range(100):
        pending.add(owed, None)
    assert len(pending.line) == LIMITS.pending_commands + 100


async def test_dropped_commands_do_not_count_towards_the_limit(pending):
    lost = pending.add(command("x" * 1_900), None)
    pending.drop_all("leadership was lost")
    with pytest.raises(NotProposed, match="leadership was lost"):
        await lost
    assert len(pending.line) == 0
    assert pending.dropped == 1
    assert not pending.fills_an_entry
    pending.add(command("x" * 1_900), None)


async def test_proposed_commands_do_not_count_towards_the_limit(pending):
    for _ in range(3):
        pending.add(command("x" * 1_900), None)
        assert pending.fills_an_entry
        (one,) = pending.gather()
        one.outcome.cancel()
        assert not pending.fills_an_entry


async def test_cancelled_commands_do_not_count_towards_the_limit(pending):
    late = pending.add(command("x" * 1_900), asyncio.get_running_loop().time() - 1)
    assert pending.gather() == []
    with pytest.raises(NotProposed, match="the deadline passed"):
        await late
    pending.add(command("x" * 1_900), None)
    with pytest.raises(LeaderOverloaded):
        pending.add(command("x" * 1_900), None)


async def test_a_command_larger_than_any_entry_is_refused_for_good():
    limits = replace(LIMITS, pending_bytes=2 * COMMAND_BYTES_MAX)
    pending = PendingCommands(limits, Leases(), asyncio.get_running_loop())
    small = command("a")
    largest = EncodedCommand(small.command, b"h", bytes(COMMAND_BYTES_MAX - 1))
    pending.add(largest, None)
    with pytest.raises(CommandTooLarge) as refused:
        pending.add(EncodedCommand(small.command, b"hh", largest.raw), None)
    assert refused.value.size_bytes == COMMAND_BYTES_MAX + 1
    assert len(pending.line) == 1


def kick(count):
    return encode_leader_command(KICK, pb.KickTasksRequest(tube="a", count=count))


async def test_the_commands_of_an_entry_change_a_limited_number_of_tasks(pending):
    for count in (ENTRY_ITEMS_MAX // 2, ENTRY_ITEMS_MAX // 2, 1, ENTRY_ITEMS_MAX + 5, 1, 1):
        pending.add(kick(count), None)
    entries = []
    while pending.line:
        entries.append([one.encoded.command.count for one in pending.gather()])
    assert entries == [[500, 500], [1], [ENTRY_ITEMS_MAX + 5], [1, 1]]
