"""Commands that wait for an entry, and what counts towards their limits."""

import asyncio
from dataclasses import replace

import pytest

from taskraft_service.entries.encoded_command import EncodedCommand
from taskraft_service.leader.command_submitter import (
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
)
from taskraft_service.leader.pending import PendingCommands
from taskraft_service.limits import COMMAND_BYTES_MAX
from tests.service.leader.test_proposer import LIMITS, command


@pytest.fixture
async def pending():
    return PendingCommands(LIMITS, asyncio.get_running_loop())


async def test_dropped_commands_do_not_count_towards_the_limit(pending):
    lost = pending.add(command("x" * 1_900), None)
    pending.drop_all("leadership was lost")
    with pytest.raises(NotProposed, match="leadership was lost"):
        await lost
    assert len(pending) == 0
    assert pending.dropped == 1
    assert not pending.fills_an_entry
    pending.add(command("x" * 1_900), None)


async def test_proposed_commands_do_not_count_towards_the_limit(pending):
    for _ in range(3):
        pending.add(command("x" * 1_900), None)
        assert pending.fills_an_entry
        (one,) = pending.gather()
        one.future.cancel()
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
    pending = PendingCommands(limits, asyncio.get_running_loop())
    small = command("a")
    largest = EncodedCommand(small.command, b"h", bytes(COMMAND_BYTES_MAX - 1))
    pending.add(largest, None)
    with pytest.raises(CommandTooLarge) as refused:
        pending.add(EncodedCommand(small.command, b"hh", largest.raw), None)
    assert refused.value.size_bytes == COMMAND_BYTES_MAX + 1
    assert len(pending) == 1
