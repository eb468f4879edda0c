"""The client and the command line on real nodes, with a killed leader."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from taskraft import AsyncClient, errors
from taskraft.cli import main
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

TASKS = 1_000
TASKS_BEFORE_THE_KILL = 300
PRODUCERS = 20


def test_a_handler_may_take_longer_than_the_time_to_run(tube):
    task_id = tube.put("a", ttr="2s")
    with tube.take(wait=0) as task:
        first_until_ms = task.lease_until_ms
        while task.lease_until_ms < first_until_ms + 2_000:
            assert not task.is_lost
        assert tube.peek(task_id).attempt == 1
        assert tube.take(wait=0) is None


def test_a_subscription_takes_and_settles_on_one_stream(real_client, tube):
    tube.put_many([str(n) for n in range(300)])
    seen = []
    with real_client.subscribe(tube.name, credit=50) as tasks:
        for batch in tasks.batches():
            seen += [int(task.text()) for task in batch]
            tasks.ack(batch)
            if len(seen) == 300:
                break
    assert seen == list(range(300))
    assert tube.stats().tasks.total == 0


def test_the_commands_work_on_a_real_cluster(node, tube):
    def run(*words):
        return CliRunner().invoke(main, [*words, "-t", node.target])

    assert run("put", tube.name, '{"name": "you"}').stdout == f"{tube.name}/1  READY\n"
    taken = run("take", tube.name, "--keep")
    token = taken.stdout.split()[-1]
    assert '{"name": "you"}   lease 1m   token' in taken.stdout
    assert run("ack", token).exit_code == 0
    assert run("ack", token).exit_code == 4
    (stats,) = json.loads(run("stats", tube.name, "-o", "json").stdout)
    assert (stats["calls"]["put"], stats["calls"]["ack"]) == (1, 1)
    assert "leader n1" in run("cluster", "status").stdout
    assert (
        len(run("feed", "tail", tube.name, "--from-start", "--no-follow").stdout.split("\n")) == 4
    )
    assert run("tube", "drop", tube.name, "--yes").exit_code == 0
    assert run("stats", tube.name).exit_code == 3


# ---------------------------------------------------------------------------------- a killed leader


async def produce(real_client, numbers, put, is_busy):
    for number in numbers:
        put.append(await real_client.tube("work").put(str(number)))
        if len(put) >= TASKS_BEFORE_THE_KILL:
            is_busy.set()


async def consume(real_client, seen, is_done):
    async with real_client.subscribe("work", credit=50) as tasks:
        async for batch in tasks.batches():
            accepted = await settle(tasks, batch)
            seen += [task.id for task in accepted]
            if is_done():
                return


async def settle(tasks, batch):
    """Acknowledge a batch; return the tasks that were accepted."""
    try:
        await tasks.ack(batch)
    except errors.ItemsRefused as told:
        return [task for position, task in enumerate(batch) if position not in told.refused]
    return batch


async def test_a_killed_leader_loses_no_put_and_no_acknowledgement(tmp_path):
    with LocalCluster(3, tmp_path) as cluster:
        put, seen, is_busy = [], [], asyncio.Event()
        async with AsyncClient(cluster.target) as client:
            await client.create_tube("work")
            numbers = iter(range(TASKS))
            consumer = asyncio.create_task(consume(client, seen, lambda: len(set(seen)) == TASKS))
            producers = [
                asyncio.create_task(produce(client, numbers, put, is_busy))
                for _ in range(PRODUCERS)
            ]
            async with asyncio.timeout(60):
                await is_busy.wait()
                seen_before = len(seen)
                cluster.leader().kill()
                await asyncio.gather(*producers)
                await consumer
            statistics = await client.tube("work").stats()
        assert 0 < seen_before < TASKS, "the leader was killed before the work was done"
        assert sorted(put) == list(range(1, TASKS + 1)), "every put has one effect"
        assert sorted(seen) == sorted(put), "every task was acknowledged once"
        assert (statistics.tasks.total, statistics.calls.put) == (0, TASKS)
