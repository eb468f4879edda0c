"""Tasks with many dependencies or headers are put in smaller messages."""

import asyncio


async def test_many_dependencies_make_smaller_messages(async_calls, memory_client):
    emails = memory_client.tube("emails")
    first = await emails.put_many(["a", "b", "c"])
    await emails.put_many(["x"] * 700, depends_on=first)
    await asyncio.gather(*(emails.put("y", depends_on=first) for _ in range(700)))
    sent = [len(request.tasks) for request in async_calls.requests("PutTasks")]
    assert sent == [3, 340, 340, 20, 339, 339, 22]


async def test_many_headers_make_smaller_messages(async_calls, memory_client):
    headers = {f"h{number}": "" for number in range(64)}
    await memory_client.tube("emails").put_many(["x"] * 500, headers=headers)
    sent = [len(request.tasks) for request in async_calls.requests("PutTasks")]
    assert sent == [255, 245]
