"""A change of more tasks than one call may name takes several calls."""

import pytest

from taskraft import errors

MANY = 2_300


@pytest.fixture
async def tube(async_calls, memory_client):
    emails = memory_client.tube("emails")
    await emails.put_many([b""] * MANY)
    return emails


def sizes(calls, method):
    return [len(request.selector.ids) for request in calls.requests(method)]


async def test_named_tasks_are_changed_in_calls_of_a_thousand(tube, async_calls):
    assert await tube.bury(range(1, MANY + 1)) == MANY
    assert sizes(async_calls, "BuryTasks") == [1_000, 1_000, 300]
    ids = [request.request_id for request in async_calls.requests("BuryTasks")]
    assert len(set(ids)) == 3, "each call is a request of its own"


async def test_refused_tasks_have_their_places_in_the_whole_list(tube):
    absent = MANY + 1
    with pytest.raises(errors.ItemsRefused) as refused:
        await tube.delete([*range(1, MANY + 1), absent])
    assert list(refused.value.refused) == [MANY]
    assert str(absent) in str(refused.value.refused[MANY])
    assert [task async for task in tube.list()] == [], "the other tasks were removed"


@pytest.mark.parametrize(
    ("count", "kicked", "counts"),
    [
        (1, 1, [1]),
        (1_001, 1_001, [1_000, 1]),
        (MANY, MANY, [1_000, 1_000, 300]),
        (9_999, MANY, [1_000, 1_000, 1_000]),
    ],
)
async def test_the_first_tasks_are_kicked_until_there_are_no_more(
    tube, async_calls, count, kicked, counts
):
    await tube.bury(range(1, MANY + 1))
    result = await tube.kick(count)
    assert (result, result.buried) == (kicked, MANY - kicked)
    assert [request.count for request in async_calls.requests("KickTasks")] == counts
