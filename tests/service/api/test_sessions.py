"""Lists of sessions: a page and its token do not reveal session ids."""

import base64

import grpc
import pytest

from taskraft.v1 import session_service_pb2, tube_service_pb2
from taskraft_service.api.rpc.paging import page_of
from tests.service.conftest import create, put, reason_of, take

pytestmark = pytest.mark.real_time


async def opened(node, name):
    request = session_service_pb2.OpenSessionRequest(name=name, ttr_ms=60_000)
    return (await node.sessions.OpenSession(request)).session.session_id


async def page(node, token):
    request = session_service_pb2.ListSessionsRequest(page_size=2, page_token=token)
    return await node.sessions.ListSessions(request)


async def test_a_page_token_does_not_contain_a_session_id(node):
    ids = sorted([await opened(node, str(number)) for number in range(5)])
    token, shown = "", []
    while True:
        answer = await page(node, token)
        shown += [one.session_id for one in answer.sessions]
        token = answer.next_page_token
        if not token:
            break
        told = base64.b64decode(token, altchars=b"-_").decode()
        assert not any(one in token or one in told for one in ids)
    assert shown == [one[:8] for one in ids]


def test_sessions_with_equal_prefixes_are_on_one_page():
    ordered = ["a1", "b1", "b2", "b3", "c1"]
    pages, token = [], ""
    while True:
        shown, token = page_of(ordered, lambda one: one[:1], 2, token, "list")
        pages.append(list(shown))
        if not token:
            break
    assert pages == [["a1", "b1", "b2", "b3"], ["c1"]]


async def test_a_page_token_of_another_list_is_refused(node):
    for name in ("a", "b"):
        await create(node, name)
        await opened(node, name)
    tubes = await node.tubes.ListTubes(tube_service_pb2.ListTubesRequest(page_size=1))
    for call in (
        page(node, tubes.next_page_token),
        node.tubes.ListTubes(
            tube_service_pb2.ListTubesRequest(names=["*"], page_token=tubes.next_page_token)
        ),
        node.tubes.GetStatistics(
            tube_service_pb2.GetStatisticsRequest(page_token=tubes.next_page_token)
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "INVALID_FIELD"
    request = tube_service_pb2.ListTubesRequest(page_size=1, page_token=tubes.next_page_token)
    assert [tube.name for tube in (await node.tubes.ListTubes(request)).tubes] == ["b"]


async def test_a_session_keeps_the_labels_with_which_it_was_opened(node):
    labels = {"host": "box-7", "pid": "4711", "role": "f\u00fcr Briefe"}
    request = session_service_pb2.OpenSessionRequest(labels=labels, ttr_ms=60_000)
    session = (await node.sessions.OpenSession(request)).session
    assert dict(session.labels) == labels
    keep = session_service_pb2.KeepSessionsRequest(session_ids=[session.session_id])
    assert dict((await node.sessions.KeepSessions(keep)).sessions[0].labels) == labels
    assert [dict(one.labels) for one in (await page(node, "")).sessions] == [labels]


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"": "x"}, "labels: a label has an empty name"),
        ({"\x1b[2J" + "a" * 61: "x"}, r"labels['\x1b[2J" + "a" * 28 + "']: 65 bytes, more than 64"),
        ({"a": "x" * 1_024}, "labels: 1025 bytes, more than 1024"),
        ({f"{number}": "" for number in range(17)}, "labels: 17 items, more than 16"),
    ],
    ids=["no name", "long name", "long", "many"],
)
async def test_labels_outside_the_limits_open_no_session(node, labels, text):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest(labels=labels))
    assert refused.value.details() == text
    assert not (await page(node, "")).sessions


async def test_labels_at_the_limits_are_kept(node):
    labels = {f"{number:064}": "" for number in range(15)} | {"v": "x" * 63}
    assert sum(len(name) + len(value) for name, value in labels.items()) == 1_024
    request = session_service_pb2.OpenSessionRequest(labels=labels)
    assert dict((await node.sessions.OpenSession(request)).session.labels) == labels


@pytest.mark.parametrize("wanted", ["53cba39", "../../etc", ""])
async def test_a_text_that_is_no_part_of_a_session_id_is_refused(node, wanted):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await leases(node, wanted)
    expected = "session_id: neither a UUID nor the first 8 characters of one"
    assert refused.value.details() == expected


async def leases(node, session_id, **fields):
    request = session_service_pb2.ListLeasesRequest(session_id=session_id, **fields)
    return await node.sessions.ListLeases(request)


async def test_the_leases_of_a_session_are_listed_across_tubes(node):
    session_id = await opened(node, "worker")
    for name in ("fax", "mail"):
        await create(node, name)
        await put(node, b"1", b"2", tube=name)
    for name in ("mail", "fax", "mail"):
        await take(node, name, 1, session_id=session_id)
    await take(node, "fax", 1, session_id=await opened(node, "other"))
    answer = await leases(node, session_id[:8])
    assert (answer.session.name, answer.session.session_id) == ("worker", session_id[:8])
    held = [(task.tube, task.id) for task in answer.tasks]
    assert held == [("mail", 1), ("fax", 1), ("mail", 2)]
    assert all(task.token and not task.spec.payload for task in answer.tasks)
    first = await leases(node, session_id, page_size=2)
    rest = await leases(node, session_id, page_size=2, page_token=first.next_page_token)
    assert [(task.tube, task.id) for task in (*first.tasks, *rest.tasks)] == held
    assert not rest.next_page_token


async def test_leases_in_temporary_tubes_come_last(node):
    session_id = await opened(node, "worker")
    await create(node, "mail")
    options = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    scratch = tube_service_pb2.Tube(
        name="scratch", kind=tube_service_pb2.Tube.FIFO, options=options
    )
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=scratch))
    for name in ("scratch", "mail"):
        await put(node, b"1", tube=name)
        await take(node, name, 1, session_id=session_id)
    assert [task.tube for task in (await leases(node, session_id)).tasks] == ["mail", "scratch"]
