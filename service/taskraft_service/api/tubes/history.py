"""Handle GetHistory: samples of the recent past, from the memory of the called node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.api.rpc.methods import AnyUnaryMethod, ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.machine.sample_rings import TOTAL, SampleRing
from taskraft_service.machine.tube_sampler import COARSE_SAMPLES, FINE_MS, TUBES_MAX, TubeSampler

HISTORY_STEPS: Final = 2_000
"""Number of steps that stand for the samples of one tube, about 1 ms."""


class HistoryHandler:
    """The handler of GetHistory.

    Args:
        sampler: has the samples of this node.
        node: name of this node.
        wall_now_ms: returns the wall time of the cluster.
    """

    def __init__(self, sampler: TubeSampler, node: str, wall_now_ms: Callable[[], int]) -> None:
        self._rings: Final = sampler.rings
        self._node = node
        self._wall_now_ms = wall_now_ms

    def method(self) -> AnyUnaryMethod:
        """Return the method GetHistory with its handler."""
        return UnaryMethod(
            "GetHistory", pb.GetHistoryRequest, ExecutionSite.ANY_NODE, self.get_history
        )

    async def get_history(self, call: UnaryCall[pb.GetHistoryRequest]) -> pb.GetHistoryResponse:
        """Return the newest samples of the total and of some tubes."""
        request = call.request
        self._check(request)
        ring = self._rings[request.step_ms or FINE_MS]
        samples = ring.newest(request.samples_max or COARSE_SAMPLES)
        names = [TOTAL] if request.total else []
        names += request.tubes
        answer = pb.GetHistoryResponse(
            node=self._node,
            step_ms=ring.step_ms,
            at_ms=ring.instants(samples),
            now_ms=self._wall_now_ms(),
        )
        async for part in call.steps.slices(names, HISTORY_STEPS):
            answer.histories.extend(_message(ring, name, samples) for name in part if name in ring)
        return answer

    def _check(self, request: pb.GetHistoryRequest) -> None:
        violations = Violations()
        violations.check_choice("step_ms", request.step_ms, (0, *self._rings))
        violations.check_range("samples_max", request.samples_max, 0, COARSE_SAMPLES)
        violations.check_count("tubes", request.tubes, TUBES_MAX)
        for place, name in enumerate(request.tubes):
            violations.check_tube(f"tubes[{place}]", name)
        violations.raise_if_any()


def _message(ring: SampleRing, name: str, samples: range) -> pb.TubeHistory:
    message = pb.TubeHistory(tube=name)
    for field, numbers in ring.columns(name, samples):
        getattr(message, field).extend(numbers)
    return message
