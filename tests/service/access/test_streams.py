"""Streams: opened, used and settled within permissions, and ended when permissions are revoked."""

import asyncio

import grpc
import pytest

from taskraft.v1 import feed_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.access.secured import (
    GRANTS,
    INVOICES,
    MAIL,
    ended,
    refused,
    session_of,
    subscribed,
    tasks_of,
    write_principals,
)
from tests.service.conftest import ack, put, take

pytestmark = pytest.mark.real_time


async def test_opening_a_stream_needs_permission_for_its_tubes(node):
    mailer, rival = await node.known("mailer"), await node.known("rival")
    refused_stream = await subscribed(mailer, MAIL, INVOICES, session_ttr_ms=60_000)
    assert await ended(refused_stream) is grpc.StatusCode.PERMISSION_DENIED
    assert node.server.machine.queue.sessions() == []
    session = await session_of(rival)
    assert await ended(await subscribed(mailer, MAIL, session_id=session.session_id)) is (
        grpc.StatusCode.NOT_FOUND
    )


async def test_a_stream_settles_only_leases_of_its_caller(node):
    root, mailer = await node.known("root"), await node.known("mailer")
    await put(root, b"a", tube=MAIL)
    await put(root, b"b", tube="secret")
    (hidden,) = (await take(root, tube="secret")).tasks
    stream = await subscribed(mailer, "*")
    (task,) = await tasks_of(stream)
    assert task.tube == MAIL
    settlement = pb.Settlement(tokens=[hidden.token, task.token], ack=pb.Settlement.Ack())
    await stream.write(pb.SubscribeRequest(settlements=[settlement]))
    while not (message := await stream.read()).settled:
        pass
    (settled,) = message.settled
    assert [(one.item, one.error.reason) for one in settled.errors] == [(0, 20)]
    assert not (await ack(root, [hidden])).errors
    move = pb.Settlement.Release(move_to="secret")
    await stream.write(pb.SubscribeRequest(settlements=[pb.Settlement(tokens=[1], release=move)]))
    assert await ended(stream) is grpc.StatusCode.PERMISSION_DENIED


async def test_revoked_permissions_apply_at_once(node, tmp_path):
    root, mailer = await node.known("root"), await node.known("mailer")
    waiting = asyncio.ensure_future(take(mailer, tube="*", wait_ms=1_000))
    await mailer.waiting(1, tube=MAIL)
    write_principals(tmp_path / "access.toml", GRANTS | {"mailer": [("consumer", "other")]})
    node.server.reload()
    await put(root, b"x", tube=MAIL)
    assert len((await waiting).tasks) == 0
    assert await refused(take(mailer, tube=MAIL)) == "NOT_ALLOWED"


async def test_tokens_are_added_and_removed_without_a_restart(node, tmp_path):
    path = tmp_path / "access.toml"
    old = await node.known("billing")
    content = path.read_text().replace("principals.billing", "principals.invoicing")
    path.write_text(content)
    node.server.reload()
    await put(old, b"x", tube=MAIL)
    write_principals(path, GRANTS | {"billing": []})
    node.server.reload()
    assert await refused(put(old, b"x", tube=MAIL)) == "NOT_ALLOWED"
    write_principals(path, {"root": GRANTS["root"]})
    node.server.reload()
    assert await refused(put(old, b"x", tube=MAIL)) == "NO_CREDENTIALS"


async def test_a_feed_stream_checks_permissions_before_each_chunk(node, tmp_path):
    auditor, root = await node.known("auditor"), await node.known("root")
    await put(root, *[b"x"] * 200, tube=MAIL)
    streams = [
        auditor.feed.ReadChanges(
            feed_service_pb2.ReadChangesRequest(partition=partition, tubes=[MAIL], from_seq=1),
            timeout=30,
        )
        for partition in range(node.server.config.feed_partitions)
    ]
    assert all([(await stream.read()).rows for stream in streams])
    write_principals(tmp_path / "access.toml", GRANTS | {"auditor": [("reader", "other")]})
    node.server.reload()
    await put(root, *[b"x"] * 200, tube=MAIL)
    codes = {await ended(stream) for stream in streams}
    assert codes == {grpc.StatusCode.PERMISSION_DENIED}
