"""The listener of a command hears of its outcome exactly once, in the same turn."""

import asyncio

import pytest

from taskraft_service.leader.command_submitter import CommandOutcome, NotProposed


@pytest.fixture
async def told():
    """An outcome, and the list of what its listener has heard."""
    outcome, told = CommandOutcome(loop=asyncio.get_running_loop()), []
    outcome.then = told.append
    return outcome, told


async def test_a_failure_is_told_at_once_and_once(told):
    outcome, heard = told
    outcome.fail(NotProposed("stopped"))
    assert heard == [outcome]
    outcome.fail(NotProposed("again"))
    assert not outcome.cancel()
    assert heard == [outcome]
    with pytest.raises(NotProposed, match="stopped"):
        await outcome


async def test_an_outcome_that_is_given_up_is_told(told):
    outcome, heard = told
    assert outcome.cancel()
    assert heard == [outcome]
    assert outcome.cancelled()
    outcome.fail(NotProposed("too late"))
    assert heard == [outcome]


async def test_an_outcome_keeps_no_reference_to_whom_it_has_told(told):
    outcome, _ = told
    outcome.fail(NotProposed("stopped"))
    assert outcome.then is None
    assert isinstance(outcome.exception(), NotProposed)
