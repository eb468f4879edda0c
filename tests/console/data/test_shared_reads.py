"""Shared reads: one call for many pages, and old answers when the cluster is silent."""

import asyncio
import gc

import pytest

from taskraft import errors
from taskraft_console.data.shared_reads import ANSWERS_MAX, SharedReads
from tests.turns import turns_until


class Cluster:
    """A cluster that counts calls, and answers when it is told to."""

    def __init__(self):
        self.calls = 0
        self.may_answer = asyncio.Event()
        self.error = None

    async def ask(self):
        self.calls += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.calls


async def test_many_pages_share_one_call():
    reads, cluster = SharedReads(), Cluster()
    pages = [asyncio.create_task(reads.read("q", 60, cluster.ask)) for _ in range(50)]
    await asyncio.sleep(0)
    cluster.may_answer.set()
    assert {reading.value for reading in await asyncio.gather(*pages)} == {1}
    assert (await reads.read("q", 60, cluster.ask)).value == 1
    assert (await reads.read("q", -1, cluster.ask)).value == 2
    assert reads.calls == 2


async def test_a_closed_page_does_not_end_the_call_of_the_others():
    reads, cluster = SharedReads(), Cluster()
    closed = asyncio.create_task(reads.read("q", 60, cluster.ask))
    other = asyncio.create_task(reads.read("q", 60, cluster.ask))
    await asyncio.sleep(0)
    closed.cancel()
    cluster.may_answer.set()
    assert (await other).value == 1
    assert cluster.calls == 1


async def test_a_silent_cluster_leaves_the_last_answer_with_the_problem():
    reads, cluster = SharedReads(), Cluster()
    cluster.may_answer.set()
    await reads.read("q", 60, cluster.ask)
    cluster.error = errors.NoLeader("no leader is known")
    old = await reads.read("q", -1, cluster.ask)
    assert (old.value, old.problem) == (1, "NO_LEADER: no leader is known")
    with pytest.raises(errors.NoLeader):
        await reads.read("another", -1, cluster.ask)


async def test_a_refusal_is_never_hidden_by_an_old_answer():
    reads, cluster = SharedReads(), Cluster()
    cluster.may_answer.set()
    await reads.read("q", 60, cluster.ask)
    cluster.error = errors.TubeNotFound("gone")
    with pytest.raises(errors.TubeNotFound):
        await reads.read("q", -1, cluster.ask)


async def test_kept_answers_are_bounded_and_can_be_forgotten():
    reads, cluster = SharedReads(), Cluster()
    cluster.may_answer.set()
    for number in range(ANSWERS_MAX + 1):
        await reads.read(number, 60, cluster.ask)
    assert (await reads.read(0, 60, cluster.ask)).value == ANSWERS_MAX + 2
    reads.forget()
    assert (await reads.read(0, 60, cluster.ask)).value == ANSWERS_MAX + 3


async def test_a_call_from_before_a_change_is_not_shared_after_the_change():
    reads, cluster = SharedReads(), Cluster()
    before = asyncio.create_task(reads.read("q", 60, cluster.ask))
    await asyncio.sleep(0)
    reads.forget()
    after = Cluster()
    after.calls = 10
    after.may_answer.set()
    assert (await reads.read("q", 60, after.ask)).value == 11
    cluster.may_answer.set()
    assert (await before).value == 1
    assert (await reads.read("q", 60, after.ask)).value == 11


async def test_a_page_that_does_not_wait_gets_the_last_answer_with_its_age():
    reads, cluster = SharedReads(), Cluster()
    assert await reads.read_soon("q", 60, cluster.ask, 0) is None
    cluster.may_answer.set()
    assert (await reads.read("q", 60, cluster.ask)).value == 1
    assert (await reads.read_soon("q", 60, cluster.ask, 0)).value == 1
    cluster.may_answer.clear()
    old = await reads.read_soon("q", -1, cluster.ask, 0)
    assert (old.value, old.problem) == (1, "")
    assert cluster.calls == 2
    cluster.may_answer.set()
    await turns_until(lambda: not reads.is_asking)
    assert (await reads.read("q", 60, cluster.ask)).value == 2


async def test_a_time_limit_of_the_call_is_no_lack_of_patience():
    reads, cluster = SharedReads(), Cluster()
    cluster.may_answer.set()
    cluster.error = TimeoutError("the call")
    with pytest.raises(TimeoutError, match="the call"):
        await reads.read_soon("q", 60, cluster.ask, 60)


async def test_an_error_without_a_waiting_page_is_not_reported_as_lost():
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    reads, cluster = SharedReads(), Cluster()
    cluster.error = errors.NoLeader("no leader is known")
    assert await reads.read_soon("q", 60, cluster.ask, 0) is None
    cluster.may_answer.set()
    await turns_until(lambda: not reads.is_asking)
    gc.collect()
    assert reported == []
