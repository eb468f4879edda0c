"""ExternalScaler: tell KEDA how many workers a tube needs.

Any node answers from the state that it has applied. KEDA divides the value of the metric by the
target, and the result is the number of replicas. A tube that does not exist yet has no tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil, isfinite
from typing import Final

from taskraft.v1 import error_pb2
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.api.rpc.methods import (
    ExecutionSite,
    MessageStream,
    ServiceMethods,
    UnaryCall,
    UnaryMethod,
    parse_request,
)
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.machine.apply_notifier import ApplyNotifier
from taskraft_service.machine.tube_sampler import FINE_MS, TubeSampler
from taskraft_service.queue.entities.task_state import READY, TAKEN
from taskraft_service.stubs.externalscaler import external_scaler_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ExternalScaler"]
RATE_MS: Final = 300_000
"""Time over which the rate of acknowledgements is measured, for the metric drain-time."""
TARGET_MAX: Final = 1e12
KNOWN: Final = frozenset({"tube", "metric", "target", "activation", "scalerAddress"})
"""Keys of the metadata; KEDA also sends its own key with the address of the scaler."""


@dataclass(slots=True, frozen=True)
class TubeWork:
    """The work in a tube at one instant.

    Attributes:
        ready: number of READY tasks.
        taken: number of TAKEN tasks.
        oldest_s: age of the oldest READY task, in seconds; 0 without one.
        acks_per_s: rate of acknowledgements over the last ``RATE_MS``; 0 if unknown.
    """

    ready: int
    taken: int
    oldest_s: float
    acks_per_s: float

    @property
    def drain_s(self) -> float:
        """Time to acknowledge all READY tasks at the current rate, but at least 1 per second."""
        return self.ready / (self.acks_per_s or 1.0)


METRICS: Final[Mapping[str, Callable[[TubeWork], float]]] = {
    "open": lambda work: work.ready + work.taken,
    "ready": lambda work: work.ready,
    "oldest-age": lambda work: work.oldest_s,
    "drain-time": lambda work: work.drain_s,
}
"""Metrics by name; ages and times are in seconds."""


@dataclass(slots=True, frozen=True)
class Trigger:
    """The checked metadata of a trigger.

    Attributes:
        tube: the tube.
        metric: a key of ``METRICS``; default "open".
        target: value of the metric for one replica.
        activation: the workload is active above this number of READY tasks, or while tasks are
            TAKEN.
    """

    tube: str
    metric: str
    target: float
    activation: int

    @property
    def metric_name(self) -> str:
        """Name of the metric towards KEDA."""
        return f"taskraft-{self.metric}-{self.tube}"

    def is_active(self, work: TubeWork) -> bool:
        """Return whether the workload needs a replica."""
        return work.ready > self.activation or work.taken > 0


class ScalerService:
    """The methods of ExternalScaler.

    Args:
        reader: reads the queue.
        sampler: knows the rate of acknowledgements.
        apply_notifier: notifies when further entries are applied.
    """

    def __init__(
        self, reader: QueueReader, sampler: TubeSampler, apply_notifier: ApplyNotifier
    ) -> None:
        self._reader = reader
        self._sampler = sampler
        self._apply_notifier = apply_notifier

    def methods(self) -> ServiceMethods:
        """Return the methods of ExternalScaler."""
        anywhere = ExecutionSite.ANY_NODE
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod("IsActive", pb.ScaledObjectRef, anywhere, self.is_active),
                UnaryMethod("GetMetricSpec", pb.ScaledObjectRef, anywhere, self.get_metric_spec),
                UnaryMethod("GetMetrics", pb.GetMetricsRequest, anywhere, self.get_metrics),
            ),
            bidirectional={},
            server_streaming={"StreamIsActive": self.stream_is_active},
        )

    async def is_active(self, call: UnaryCall[pb.ScaledObjectRef]) -> pb.IsActiveResponse:
        """Return whether the tube has work."""
        trigger = trigger_of(call.request)
        return pb.IsActiveResponse(result=trigger.is_active(self._work(trigger.tube)))

    async def get_metric_spec(
        self, call: UnaryCall[pb.ScaledObjectRef]
    ) -> pb.GetMetricSpecResponse:
        """Return the target of the trigger."""
        trigger = trigger_of(call.request)
        spec = pb.MetricSpec(
            metricName=trigger.metric_name,
            targetSize=ceil(trigger.target),
            targetSizeFloat=trigger.target,
        )
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, call: UnaryCall[pb.GetMetricsRequest]) -> pb.GetMetricsResponse:
        """Return the value of the metric."""
        trigger = trigger_of(call.request.scaledObjectRef)
        value = METRICS[trigger.metric](self._work(trigger.tube))
        found = pb.MetricValue(
            metricName=trigger.metric_name, metricValue=ceil(value), metricValueFloat=value
        )
        return pb.GetMetricsResponse(metricValues=[found])

    async def stream_is_active(self, raw: bytes, stream: MessageStream, caller: Caller) -> None:
        """Send whether the tube has work, at once and after each change.

        Raises:
            CallRefused: INVALID_FIELD; DRAINING, this node is stopping.
            PermissionDenied: the caller may not read the tube.
        """
        request = parse_request(pb.ScaledObjectRef, raw)
        caller.authorize(request)
        trigger = trigger_of(request)
        sent: bool | None = None
        while not self._apply_notifier.ended:
            active = trigger.is_active(self._work(trigger.tube))
            if active is not sent:
                await stream.write(pb.IsActiveResponse(result=active).SerializeToString())
                sent = active
            changed = partial(self._differs, trigger, active)
            await self._apply_notifier.wait_for(changed, limits.WAIT_MAX_MS / 1000)
        raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")

    def _differs(self, trigger: Trigger, active: bool) -> bool:  # noqa: FBT001 - used with partial
        return trigger.is_active(self._work(trigger.tube)) != active

    def _work(self, tube: str) -> TubeWork:
        """Return the work in a tube; none if the tube does not exist."""
        reader = self._reader
        if reader.applied.tube_number(tube) is None:
            return TubeWork(0, 0, 0.0, 0.0)
        (counts,) = reader.queues.statistics([tube])
        ready, taken = counts.states[READY], counts.states[TAKEN]
        oldest_ms = counts.oldest_ready_ms
        age_ms = max(reader.now_ms() - oldest_ms, 0) if oldest_ms else 0
        return TubeWork(ready, taken, age_ms / 1000, self._acks_per_s(tube))

    def _acks_per_s(self, tube: str) -> float:
        ring = self._sampler.rings[FINE_MS]
        if tube not in ring:
            return 0.0
        samples = min(ring.count, RATE_MS // FINE_MS)
        summary = ring.summary(tube, samples)
        if summary is None or not summary.ack:
            return 0.0
        return summary.ack / (samples * FINE_MS / 1000)


def trigger_of(reference: pb.ScaledObjectRef) -> Trigger:
    """Return the trigger of a ScaledObject.

    Raises:
        CallRefused: INVALID_FIELD, the metadata is incomplete or malformed.
    """
    metadata = dict(reference.scalerMetadata)
    violations = Violations()
    violations.check_tube("scalerMetadata[tube]", metadata.get("tube", ""))
    metric = metadata.get("metric", "open")
    if metric not in METRICS:
        violations.add("scalerMetadata[metric]", f"{metric!r} is none of {', '.join(METRICS)}")
    target = _number(metadata.get("target", ""))
    if not 0 < target <= TARGET_MAX:
        violations.add("scalerMetadata[target]", "must be a number above 0")
    activation = _number(metadata.get("activation", "0"))
    if not (0 <= activation <= TARGET_MAX and activation.is_integer()):
        violations.add("scalerMetadata[activation]", "must be a whole number of at least 0")
    for key in sorted(metadata.keys() - KNOWN):
        violations.add(
            f"scalerMetadata[{key}]", f"unknown key; the keys are {', '.join(sorted(KNOWN))}"
        )
    violations.raise_if_any()
    return Trigger(metadata["tube"], metric, target, int(activation))


def _number(text: str) -> float:
    """Return the finite number in a text; -1 for any other text."""
    try:
        number = float(text)
    except ValueError:
        return -1.0
    return number if isfinite(number) else -1.0
