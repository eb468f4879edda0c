"""Snapshots that a node keeps: their number per node and principal, and which one is deleted."""

import asyncio
from itertools import count

import pytest

from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.state.kept_snapshots import KeptSnapshots
from taskraft_service.limits import SNAPSHOTS_MAX, SNAPSHOTS_SHARE_MAX


class Content:
    def close(self):
        """Nothing to delete."""


class Bench:
    def __init__(self):
        self.kept = KeptSnapshots("n0")
        self.ids = map(str, count())

    async def idle(self, owner):
        """Open a snapshot and end its only use."""
        snapshot = await self.opened(owner)
        with self.kept.used(snapshot, keep_seconds=300):
            pass
        return snapshot

    async def opened(self, owner):
        async def create():
            return Content()

        return await self.kept.add(next(self.ids), owner, create)

    def has(self, snapshot):
        try:
            return self.kept.find(snapshot.snapshot_id) is snapshot
        except CallRefused:
            return False


async def refused(opening):
    with pytest.raises(CallRefused) as caught:
        await opening
    return caught.value.metadata


async def test_a_principal_has_its_share_and_no_more():
    bench = Bench()
    for _ in range(SNAPSHOTS_SHARE_MAX):
        await bench.opened("reader")
    assert await refused(bench.opened("reader")) == {
        "limit": "snapshots_share_max",
        "value": str(SNAPSHOTS_SHARE_MAX),
        "principal": "reader",
    }
    await bench.opened("other")


async def test_a_principal_replaces_only_its_own_snapshots():
    bench = Bench()
    kept = [await bench.idle(one) for one in ("a", "a", "b")]
    newest = await bench.idle("a")
    assert [bench.has(one) for one in (*kept, newest)] == [False, True, True, True]


async def test_the_only_snapshot_of_another_principal_is_never_deleted():
    bench = Bench()
    only = [await bench.idle(one) for one in "abcd"]
    assert len(only) == SNAPSHOTS_MAX
    assert (await refused(bench.opened("e")))["limit"] == "snapshots_max"
    assert all(map(bench.has, only))
    await bench.idle("a")
    assert [bench.has(one) for one in only] == [False, True, True, True]


async def test_room_comes_from_a_principal_with_several_snapshots():
    bench = Bench()
    kept = [await bench.idle(one) for one in ("a", "b", "b", "c")]
    await bench.idle("d")
    assert [bench.has(one) for one in kept] == [True, False, True, True]


async def test_snapshots_that_are_being_created_count():
    bench = Bench()
    go_on = asyncio.Event()

    async def create():
        await go_on.wait()
        return Content()

    creating = [asyncio.ensure_future(bench.kept.add(one, "a", create)) for one in "xy"]
    await asyncio.sleep(0)
    assert (await refused(bench.opened("a")))["limit"] == "snapshots_share_max"
    go_on.set()
    await asyncio.gather(*creating)


async def test_callers_without_a_principal_may_have_all():
    bench = Bench()
    for _ in range(SNAPSHOTS_MAX):
        await bench.opened("")
    assert (await refused(bench.opened("")))["limit"] == "snapshots_max"
