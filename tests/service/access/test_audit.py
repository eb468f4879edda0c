"""The replicated audit: which acts are recorded, and who may see them."""

import pytest

from taskraft.v1 import cluster_service_pb2 as cluster
from taskraft.v1 import error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.access.secured import MAIL, refused
from tests.service.conftest import put

pytestmark = pytest.mark.real_time


async def acts(caller, **fields):
    return await caller.cluster.ListAudit(cluster.ListAuditRequest(**fields))


async def test_each_act_of_management_is_recorded_in_its_entry(node):
    root = await node.known("root")
    await put(root, b"secret-content", b"b", tube=MAIL)
    deleted = await root.tasks.DeleteTasks(
        pb.DeleteTasksRequest(tube=MAIL, selector=task_pb2.TaskSelector(filter="priority = 0"))
    )
    settings = cluster.ConfigureRequest(settings={"failover_grace_ms": 1_000})
    await root.cluster.Configure(settings)
    gone = root.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="gone"))
    assert await refused(gone) == "TUBE_NOT_FOUND"
    page = await acts(root, page_size=3)
    drop, configure, delete = page.records
    assert (delete.principal, delete.call, list(delete.names)) == ("root", "DeleteTasks", [MAIL])
    assert (delete.tasks, delete.revision, delete.refused) == (2, deleted.revision, 0)
    assert delete.detail == "filter='priority = 0'"
    assert delete.peer.startswith("ipv4:127.0.0.1:")
    assert (configure.call, list(configure.names)) == ("Configure", ["*"])
    assert configure.detail == "failover_grace_ms: 1000"
    assert drop.refused == error_pb2.Error.TUBE_NOT_FOUND
    assert b"secret-content" not in page.SerializeToString()


async def test_a_caller_sees_the_acts_on_names_that_it_may_manage(node):
    root, billing = await node.known("root"), await node.known("billing")
    assert len((await acts(root)).records) == 3  # the tubes of the fixture
    assert not (await acts(billing)).records
    assert len((await acts(root, name=MAIL)).records) == 1
    assert len((await acts(root, principal="root", call="CreateTube")).records) == 3
    assert not (await acts(root, principal="billing")).records


async def test_an_act_names_the_person_for_whom_a_principal_speaks(node):
    root = await node.known("root", x_taskraft_person="Zo%C3%AB%20%22Z%22")
    selector = task_pb2.TaskSelector(filter="priority = 0")
    await root.tasks.DeleteTasks(pb.DeleteTasksRequest(tube=MAIL, selector=selector))
    [record] = (await acts(root, call="DeleteTasks")).records
    assert record.principal == "root"
    assert record.detail == """person='Zoë "Z"' filter='priority = 0'"""


async def test_a_refused_permission_leaves_no_record(node):
    root, billing = await node.known("root"), await node.known("billing")
    before = await acts(root)
    drop = billing.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=MAIL))
    assert await refused(drop) == "NOT_ALLOWED"
    await put(billing, b"x", tube=MAIL)
    assert await acts(root) == before


async def test_pages_have_each_act_once(node):
    root = await node.known("root")
    whole = (await acts(root)).records
    found, token = [], ""
    while True:
        page = await acts(root, page_size=2, page_token=token)
        found += page.records
        token = page.next_page_token
        if not token:
            break
    assert found == list(whole)
    token = (await acts(root, page_size=1)).next_page_token
    assert await refused(acts(root, name=MAIL, page_token=token)) == "INVALID_FIELD"


async def test_an_act_on_a_temporary_tube_is_recorded(node):
    root = await node.known("root")
    options = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    tube = tube_service_pb2.Tube(name="quick", kind=tube_service_pb2.Tube.FIFO, options=options)
    await root.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    await put(root, b"x", tube="quick")
    selector = task_pb2.TaskSelector(filter="priority = 0")
    answer = await root.tasks.DeleteTasks(pb.DeleteTasksRequest(tube="quick", selector=selector))
    assert answer.count == 1
    assert (await acts(root)).records[0].call == "DeleteTasks"


async def test_a_caller_is_told_its_principal_and_grants(node):
    mailer = await node.known("mailer")
    answer = await mailer.cluster.GetCaller(cluster.GetCallerRequest())
    assert answer.principal == "mailer"
    assert [(one.role, list(one.tubes)) for one in answer.grants] == [
        ("consumer", [MAIL]),
        ("reader", [MAIL]),
    ]
