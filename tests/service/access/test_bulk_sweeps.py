"""Bulk sweeps: who may start, see and stop them, and what a revoked grant does."""

import pytest

from taskraft.v1 import bulk_sweep_pb2 as bulk
from taskraft.v1 import cluster_service_pb2 as cluster
from tests.service.access.secured import MAIL, refused
from tests.service.conftest import put

pytestmark = pytest.mark.real_time

DELETE = bulk.StartBulkSweepRequest.DELETE


async def test_a_sweep_needs_the_role_admin_and_hides_from_strangers(node):
    root, mailer, billing = [await node.known(one) for one in ("root", "mailer", "billing")]
    request = bulk.StartBulkSweepRequest(tube=MAIL, action=DELETE)
    assert await refused(mailer.tasks.StartBulkSweep(request)) == "NOT_ALLOWED"
    sweep = (await root.tasks.StartBulkSweep(request)).sweep
    assert sweep.principal == "root"
    get, stop = bulk.GetBulkSweepRequest(number=1), bulk.StopBulkSweepRequest(number=1)
    assert (await mailer.tasks.GetBulkSweep(get)).sweep.number == 1
    assert await refused(mailer.tasks.StopBulkSweep(stop)) == "NOT_ALLOWED"
    assert await refused(billing.tasks.GetBulkSweep(get)) == "NOT_ALLOWED"
    listed = await mailer.tasks.ListBulkSweeps(bulk.ListBulkSweepsRequest())
    assert [each.number for each in listed.sweeps] == [1]


async def test_a_sweep_changes_tasks_at_its_rate_and_ends(node):
    root = await node.known("root")
    await put(root, *[b"x"] * 30, tube=MAIL)
    request = bulk.StartBulkSweepRequest(
        tube=MAIL, action=DELETE, filter="id != 7", rate_per_second=100
    )
    number = (await root.tasks.StartBulkSweep(request)).sweep.number
    sweep = bulk.BulkSweep()
    while not sweep.ended_ms:
        sweep = (await root.tasks.GetBulkSweep(bulk.GetBulkSweepRequest(number=number))).sweep
    assert (sweep.state, sweep.changed, sweep.steps) == (bulk.BulkSweep.DONE, 29, 2)
    [act] = (await root.cluster.ListAudit(cluster.ListAuditRequest(call="StartBulkSweep"))).records
    assert act.detail == "filter='id != 7' action=delete"
    assert sweep.ended_ms - sweep.started_ms >= 190  # 20 tasks a step, 100 a second
