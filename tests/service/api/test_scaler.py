"""ExternalScaler, asked by a driver that behaves as KEDA: from zero workers up and back."""

import asyncio
from math import ceil

import grpc
import pytest

from taskraft_service.stubs.externalscaler import external_scaler_pb2 as pb
from taskraft_service.stubs.externalscaler import external_scaler_pb2_grpc
from tests.service.api.tubes.test_history import sample
from tests.service.conftest import ack, create, put, reason_of, take

pytestmark = pytest.mark.real_time


class Keda:
    """Scales a workload by the answers of one node.

    KEDA starts the first replica when the scaler is active, and stops the last one when the scaler
    is not active any more. In between, the number of replicas is the value divided by the target.
    """

    def __init__(self, node, **metadata):
        self.stub = external_scaler_pb2_grpc.ExternalScalerStub(node.channel)
        self.reference = pb.ScaledObjectRef(
            name="workers",
            namespace="jobs",
            scalerMetadata={"scalerAddress": "taskraft:7401", "tube": "emails", **metadata},
        )

    async def value(self):
        spec = (await self.stub.GetMetricSpec(self.reference)).metricSpecs[0]
        request = pb.GetMetricsRequest(scaledObjectRef=self.reference, metricName=spec.metricName)
        (found,) = (await self.stub.GetMetrics(request)).metricValues
        assert found.metricName == spec.metricName
        assert found.metricValue == ceil(found.metricValueFloat)
        return found.metricValueFloat

    async def replicas(self):
        if not (await self.stub.IsActive(self.reference)).result:
            return 0
        spec = (await self.stub.GetMetricSpec(self.reference)).metricSpecs[0]
        return max(1, ceil(await self.value() / spec.targetSizeFloat))


async def test_a_workload_grows_from_zero_and_shrinks_to_zero(node):
    keda = Keda(node, target="5")
    assert await keda.replicas() == 0, "the tube does not exist yet"
    await create(node)
    assert await keda.replicas() == 0
    await put(node, *[b"x"] * 23)
    assert await keda.replicas() == 5
    tasks = (await take(node, tasks_max=20)).tasks
    assert await keda.replicas() == 5, "taken tasks keep their workers"
    await ack(node, tasks)
    assert await keda.replicas() == 1
    tasks = (await take(node)).tasks
    assert await keda.replicas() == 1, "the last worker is not stopped at its task"
    await ack(node, tasks)
    assert await keda.replicas() == 0


async def test_the_stream_reports_each_change(node):
    await create(node)
    keda = Keda(node, target="5", activation="1")
    changes = keda.stub.StreamIsActive(keda.reference)
    assert not (await changes.read()).result
    await put(node, b"1")
    second = asyncio.ensure_future(changes.read())
    assert not (await keda.stub.IsActive(keda.reference)).result, "one task is the activation"
    await put(node, b"2")
    assert (await second).result
    await ack(node, (await take(node)).tasks)
    assert not (await changes.read()).result
    changes.cancel()


async def test_ages_and_drain_times_are_seconds(node):
    await create(node)
    oldest = Keda(node, target="30", metric="oldest-age")
    drain = Keda(node, target="60", metric="drain-time")
    assert (await oldest.value(), await drain.value()) == (0, 0)
    await put(node, *[b"x"] * 40)
    assert 0 <= await oldest.value() < 60
    assert await drain.value() == 40, "without a known rate: one task per second"
    sample(node)
    await ack(node, (await take(node, tasks_max=20)).tasks)
    sample(node)
    assert await drain.value() == pytest.approx(20 / (20 / 20)), "20 tasks in two samples of 10 s"
    assert await Keda(node, target="1", metric="ready").value() == 20


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"tube": ""}, "scalerMetadata[tube]"),
        ({"tube": "a*"}, "scalerMetadata[tube]"),
        ({"metric": "latency"}, "scalerMetadata[metric]"),
        ({"target": "0"}, "scalerMetadata[target]"),
        ({"target": "many"}, "scalerMetadata[target]"),
        ({"target": "nan"}, "scalerMetadata[target]"),
        ({"target": "inf"}, "scalerMetadata[target]"),
        ({"activation": "-1"}, "scalerMetadata[activation]"),
        ({"activation": "0.5"}, "scalerMetadata[activation]"),
        ({"tubes": "emails"}, "scalerMetadata[tubes]"),
    ],
    ids=str,
)
async def test_wrong_metadata_is_refused_with_its_key(node, metadata, field):
    keda = Keda(node, **{"target": "5", **metadata})
    for call in (
        keda.stub.IsActive(keda.reference),
        keda.stub.GetMetricSpec(keda.reference),
        keda.stub.StreamIsActive(keda.reference).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "INVALID_FIELD"
        assert field in caught.value.details()
