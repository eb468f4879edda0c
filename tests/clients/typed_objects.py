"""Results of the client as a type checker sees them; ``# E: code`` marks an error."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_type

from taskraft import (
    AsyncClient,
    AttemptFailure,
    Client,
    Group,
    OperationCounts,
    PlannedTask,
    Retry,
    Schedule,
    Statistics,
    Task,
    TaskraftError,
    TubeInfo,
    TubeStatistics,
)


def tubes(client: Client) -> None:
    tube = client.ensure_tube("mail", ttr="1m", retry=Retry.forever())
    assert_type(tube, TubeInfo)
    assert_type(client.create_tube("mail", if_not_exists=True), TubeInfo)
    assert_type(client.list_tubes(), list[TubeInfo])
    assert_type(tube.options.ttl_ms, int | None)
    assert_type(tube.options.retry, Retry)
    assert_type(tube.created, datetime | None)
    tube.name = "other"  # E: misc
    client.ensure_tube("mail", if_not_exists=True)  # E: call-arg


def counts(client: Client) -> None:
    assert_type(client.stats(), Statistics)
    assert_type(client.stats().tubes, tuple[TubeStatistics, ...])
    assert_type(client.tube("mail").stats().calls, OperationCounts)


def groups_and_schedules(client: Client) -> None:
    group = client.groups.get("book")
    assert_type(group, Group)
    assert_type(group.end_task, PlannedTask | None)
    assert_type(group.last_error, TaskraftError | None)
    (schedule,) = client.schedules.list()
    assert_type(client.schedules.update(replace(schedule, paused=True)), Schedule)
    client.schedules.update("nightly")  # E: arg-type


async def tasks(client: AsyncClient) -> None:
    mail = client.tube("mail")
    assert_type(await mail.put("x", visible_at=datetime.now(UTC)), int)
    await mail.put("x", visible_at=5)  # E: arg-type
    task = await mail.put_and_read("x")
    assert_type(task, Task)
    assert_type(task.failures, list[AttemptFailure])
    assert_type(task.visible_at, datetime | None)
    assert_type(await client.settle_and_read(1), list[Task])
