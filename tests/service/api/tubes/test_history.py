"""GetHistory: samples of tubes, and which tubes have samples of their own."""

import pytest

from taskraft.v1 import tube_service_pb2
from taskraft_service.cluster import past_samples
from taskraft_service.cluster.past_samples import PastSamples
from taskraft_service.machine import tube_sampler
from taskraft_service.machine.tube_sampler import TubeSampler
from tests.service.conftest import ack, create, put, take

pytestmark = pytest.mark.real_time


def sample(node):
    for _ in node.server.components.sampler.sample():
        pass


async def history(node, *tubes, **fields):
    request = tube_service_pb2.GetHistoryRequest(tubes=tubes, **fields)
    return await node.tubes.GetHistory(request)


async def test_samples_count_operations_and_measure_tasks(node):
    await create(node, "mail")
    await put(node, b"1", b"2", b"3", tube="mail")
    sample(node)
    await put(node, b"4", tube="mail")
    await ack(node, (await take(node, "mail", tasks_max=2)).tasks)
    sample(node)
    answer = await history(node, "mail", total=True)
    total, mail = answer.histories
    assert (answer.step_ms, len(answer.at_ms)) == (10_000, 2)
    assert (list(mail.put), list(mail.take), list(mail.ack)) == ([-1, 1], [-1, 2], [-1, 2])
    assert list(mail.ready) == [3, 2]
    assert (total.tube, list(total.ready), list(total.ack)) == ("", [3, 2], [-1, 2])
    assert mail.oldest_ready_age_ms[1] >= 0
    assert mail.wait_p50_ms[1] >= 0
    assert mail.run_p95_ms[1] >= 0
    assert list((await history(node, "mail", samples_max=1)).histories[0].ready) == [2]


async def test_twelve_samples_make_a_coarse_one(node):
    await create(node, "mail")
    for number in range(tube_sampler.COARSE_EVERY):
        await put(node, str(number).encode(), tube="mail")
        sample(node)
    answer = await history(node, "mail", step_ms=120_000)
    assert list(answer.histories[0].put) == [tube_sampler.COARSE_EVERY - 1]
    assert list(answer.histories[0].ready) == [tube_sampler.COARSE_EVERY]


async def test_only_the_tubes_that_were_active_last_have_samples(node, monkeypatch):
    monkeypatch.setattr(tube_sampler, "TUBES_MAX", 2)
    for name in ("a", "b", "c"):
        await create(node, name)
        await put(node, b"1", tube=name)
        sample(node)
    answer = await history(node, "a", "b", "c", "none")
    assert [one.tube for one in answer.histories] == ["b", "c"]


async def test_past_samples_come_from_the_node_that_has_most(node):
    await create(node, "mail")
    await put(node, b"1", tube="mail")
    sample(node)
    await put(node, b"2", tube="mail")
    sample(node)
    components = node.server.components
    restarted = TubeSampler(components.queues, lambda: components.wall_now_ms() + 10_000)
    for _ in restarted.sample():
        pass
    addresses = [f"127.0.0.1:{port}" for port in (1, node.server.client_port)]
    await PastSamples(restarted, lambda: addresses, None).run()
    ring = restarted.rings[tube_sampler.FINE_MS]
    assert dict(ring.columns("mail", ring.newest(9)))["ready"] == [1, 2, 2]
    own = components.sampler.rings[tube_sampler.FINE_MS]
    assert ring.instants(ring.newest(9))[:2] == own.instants(own.newest(9))


async def test_a_restarted_node_samples_the_same_tubes_as_the_other_node(node, monkeypatch):
    monkeypatch.setattr(tube_sampler, "TUBES_MAX", 1)
    for tube in ("z", "a"):
        await create(node, tube)
        await put(node, b"1", tube=tube)
        sample(node)
        node.server.components.machine.write_applied()
    components = node.server.components
    restarted = TubeSampler(components.queues, lambda: components.wall_now_ms() + 10_000)
    for _ in restarted.sample():
        pass
    assert restarted.sampled_tubes() == ["z"], "the last by name"
    address = f"127.0.0.1:{node.server.client_port}"
    await PastSamples(restarted, lambda: [address], None).run()
    assert restarted.sampled_tubes() == ["a"]
    ring = restarted.rings[tube_sampler.FINE_MS]
    assert dict(ring.columns("a", ring.newest(9)))["ready"] == [-1, 1, -1]


async def test_a_node_without_samples_does_not_stop_the_search_for_others(node, monkeypatch):
    monkeypatch.setattr(past_samples, "ROUND_SECONDS", 0)
    await create(node, "mail")
    await put(node, b"1", tube="mail")
    components = node.server.components
    restarted = TubeSampler(components.queues, lambda: components.wall_now_ms() + 10_000)
    for _ in restarted.sample():
        pass
    rounds = iter((lambda: None, lambda: sample(node)))

    def others():
        next(rounds)()
        return [f"127.0.0.1:{port}" for port in (1, node.server.client_port)]

    await PastSamples(restarted, others, None).run()
    ring = restarted.rings[tube_sampler.FINE_MS]
    assert dict(ring.columns("mail", ring.newest(9)))["ready"] == [1, 1]


async def test_nothing_is_asked_again_if_the_others_have_no_samples(node):
    components = node.server.components
    fresh = TubeSampler(components.queues, components.wall_now_ms)
    for _ in fresh.sample():
        pass
    address = f"127.0.0.1:{node.server.client_port}"
    await PastSamples(fresh, lambda: [address], None).run()
    assert fresh.rings[tube_sampler.FINE_MS].count == 1


async def test_brief_statistics_leave_out_the_counts_of_operations(node):
    await create(node, "mail")
    await put(node, b"1", tube="mail")
    request = tube_service_pb2.GetStatisticsRequest(brief=True)
    answer = await node.tubes.GetStatistics(request)
    assert not answer.tubes[0].HasField("calls")
    assert answer.tubes[0].tasks.ready == 1
    assert answer.total.calls.put == 1
