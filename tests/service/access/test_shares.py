"""One principal cannot take all slots of a node, and a stream must begin with a message."""

from dataclasses import replace
from itertools import count

import grpc
import pytest

from taskraft.v1 import (
    feed_service_pb2,
    group_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc import grpc_calls
from tests.service.access.secured import (
    GRANTS,
    MAIL,
    refusal,
    secured,
    subscribed,
    write_principals,
)
from tests.service.conftest import create
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

NUMBERS = count(1)


@pytest.mark.parametrize("edge", ["grpc", "auto"])
async def test_a_principal_without_grants_leaves_streams_for_others(tmp_path, edge):
    async with secured(tmp_path, streams_max=4, edge=edge) as node:
        await create(await node.known("root"), MAIL)
        nobody, mailer = await node.known("nobody"), await node.known("mailer")
        held = [nobody.tasks.Subscribe() for _ in range(3)]
        for stream in held:
            await stream.initial_metadata()
        assert await refusal(nobody.tasks.Subscribe().read()) == (
            "OVERLOADED",
            {"limit": "streams_share_max", "value": "3", "principal": "nobody"},
        )
        stream = await subscribed(mailer, MAIL)
        assert (await stream.read()).opened.session_id
        for one in (*held, stream):
            one.cancel()
        await turns_until(lambda: not node.server.components.load.streams)


@pytest.mark.parametrize("edge", ["grpc", "auto"])
async def test_a_stream_without_a_first_message_ends(tmp_path, monkeypatch, edge):
    assert grpc_calls.FIRST_MESSAGE_SECONDS == 10
    monkeypatch.setattr(grpc_calls, "FIRST_MESSAGE_SECONDS", 0.01)
    async with secured(tmp_path, edge=edge) as node:
        stream = (await node.known("mailer")).tasks.Subscribe()
        reason, metadata = await refusal(stream.read())
        assert (reason, metadata["limit"]) == ("CLIENT_SILENT", "first_message_ms")
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("edge", ["grpc", "auto"])
async def test_a_stream_that_has_begun_may_be_silent(tmp_path, monkeypatch, edge):
    async with secured(tmp_path, edge=edge) as node:
        await create(await node.known("root"), MAIL)
        mailer = await node.known("mailer")
        stream = await subscribed(mailer, MAIL)
        assert (await stream.read()).opened.session_id
        monkeypatch.setattr(grpc_calls, "FIRST_MESSAGE_SECONDS", 0.0)
        await stream.write(pb.SubscribeRequest(heartbeat=True))
        while not (await stream.read()).HasField("heartbeat"):
            pass
        stream.cancel()


def opening(stubs):
    return stubs.sessions.OpenSession(session_service_pb2.OpenSessionRequest(ttr_ms=60_000))


def scheduling(stubs):
    schedule = {"name": f"billing.{next(NUMBERS)}", "cron": "0 3 * * *", "tube": MAIL}
    return stubs.schedules.CreateSchedule(
        schedule_service_pb2.CreateScheduleRequest(schedule=schedule)
    )


def grouping(stubs):
    group = {"name": f"billing.{next(NUMBERS)}"}
    return stubs.groups.CreateGroup(group_service_pb2.CreateGroupRequest(group=group))


def creating(stubs):
    tube = {"name": f"billing.{next(NUMBERS)}", "kind": tube_service_pb2.Tube.FIFO}
    return stubs.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


def putting(stubs):
    return stubs.tasks.PutTasks(pb.PutTasksRequest(tube=f"billing.{next(NUMBERS)}", tasks=[{}]))


def putting_in_batch(stubs):
    put = pb.PutTasksRequest(tube=f"billing.{next(NUMBERS)}", tasks=[{}])
    return stubs.tasks.ExecuteBatch(pb.ExecuteBatchRequest(operations=[{"put": put}]))


def committing(stubs):
    cursor = feed_service_pb2.FeedCursor(next_seq={0: 0})
    return stubs.feed.CommitCursor(
        feed_service_pb2.CommitCursorRequest(consumer=f"billing.{next(NUMBERS)}", cursor=cursor)
    )


@pytest.mark.parametrize(
    ("create", "kind", "names"),
    [
        (creating, "tubes", ("root", "deputy")),
        (putting, "tubes", ("billing", "biller")),
        (putting_in_batch, "tubes", ("billing", "biller")),
        (opening, "sessions", ("mailer", "rival")),
        (scheduling, "schedules", ("billing", "biller")),
        (grouping, "groups", ("billing", "biller")),
        (committing, "consumers", ("root", "deputy")),
    ],
    ids=[
        *("tubes", "tubes of puts", "tubes of batches", "sessions", "schedules", "groups"),
        "consumers",
    ],
)
async def test_a_principal_has_a_share_of_the_state(tmp_path, create, kind, names):
    grants = {**GRANTS, "deputy": GRANTS["root"]}
    file = write_principals(tmp_path / "access.toml", grants)
    async with secured(tmp_path, access_file=file, auto_create_tubes=True) as node:
        state = node.server.components.machine.queue._state
        state.limits = replace(state.limits, **{f"{kind}_share_max": 1})
        first, other = [await node.known(name) for name in names]
        await create(first)
        assert await refusal(create(first)) == (
            "LIMIT_REACHED",
            {"limit": f"{kind}_share_max", "value": "1", "principal": names[0]},
        )
        await create(other)
