"""Fixtures of the tests of members on real connections."""

import pytest

from tests.replication.remembering_member import Member


@pytest.fixture
async def pair(tmp_path):
    """Two members that are connected to each other."""
    members = [Member(tmp_path, 1), Member(tmp_path, 2)]
    for member in members:
        await member.start()
    for member, other in zip(members, reversed(members), strict=True):
        member.join(other)
    yield members
    for member in members:
        await member.stop()
