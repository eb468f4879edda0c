"""Read the samples of tubes before the start of this node from another node of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import grpc.aio
import structlog

from taskraft.v1 import tube_service_pb2 as pb
from taskraft.v1 import tube_service_pb2_grpc
from taskraft_replication.peers.security import PeerSecurity

log: Final = structlog.get_logger(__name__)

STEPS_MS: Final = (10_000, 120_000)
"""The distances of the samples that nodes keep."""
COLUMNS: Final = [field.name for field in pb.TubeHistory.DESCRIPTOR.fields if field.name != "tube"]
NAMES_MAX: Final = 10
"""Number of tubes in one request for all samples."""
LISTED_NAMES_MAX: Final = 200
"""Number of tubes in one request that finds out which tubes have samples."""
ASK_SECONDS: Final = 5.0
"""Maximum time of one request."""
ROUNDS: Final = 30
"""Number of times that all other nodes are asked until one of them answers."""
ROUND_SECONDS: Final = 10.0
"""Pause between two rounds."""


class Samples(Protocol):
    """The samples of this node."""

    @property
    def has_sampled(self) -> asyncio.Event:
        """Set after the first sample."""

    def sampled_tubes(self) -> Sequence[str]:
        """Return the tubes with samples of their own."""

    def surplus_tubes(self) -> Sequence[str]:
        """Return all tubes if there are more than can have samples; otherwise none."""

    def activate(self, names: Sequence[str]) -> None:
        """Give samples to the tubes that have samples on another node, instead of to others."""

    def begin_past(self, step_ms: int, at_ms: Sequence[int]) -> None:
        """Set the instants of samples before the start of this node."""

    def fill_past(
        self, step_ms: int, name: str, at_ms: Sequence[int], columns: Mapping[str, Sequence[int]]
    ) -> None:
        """Set the numbers of a tube before the start."""


class PastSamples:
    """Fills the past once, from the node with the most samples.

    The other nodes have sampled the same state at other instants, so the numbers of both differ by
    what happened within a few seconds.

    Args:
        samples: the samples of this node.
        others: returns the addresses of the other members.
        security: with certificates, requests go to the peer ports.
    """

    def __init__(
        self,
        samples: Samples,
        others: Callable[[], Sequence[str]],
        security: PeerSecurity | None,
    ) -> None:
        self._samples = samples
        self._others = others
        self._security = security

    async def run(self) -> None:
        """Fill the past after the first own sample, as soon as another node answers."""
        await self._samples.has_sampled.wait()
        for _ in range(ROUNDS):
            counts = {address: await self._sample_count(address) for address in self._others()}
            for address in sorted(counts, key=counts.__getitem__, reverse=True):
                if counts[address] and await self._fill_from(address):
                    return
            if not any(counts.values()):
                return  # all others answered, and have no samples either
            await asyncio.sleep(ROUND_SECONDS)
        log.warning("no past samples: no other node with samples answered", rounds=ROUNDS)

    async def _sample_count(self, address: str) -> int:
        """Return the number of samples of a node; -1: the node did not answer."""
        request = pb.GetHistoryRequest(total=True, step_ms=STEPS_MS[0])
        try:
            async with self._tubes(address) as stub:
                return len((await stub.GetHistory(request, timeout=ASK_SECONDS)).at_ms)
        except grpc.aio.AioRpcError:
            return -1

    async def _fill_from(self, address: str) -> bool:
        """Read all samples of a node; return whether the node answered each request."""
        try:
            async with self._tubes(address) as stub:
                await self._choose_tubes(stub)
                for step_ms in STEPS_MS:
                    await self._fill(stub, step_ms)
        except grpc.aio.AioRpcError as error:
            log.info(
                "cannot read past samples; asking again", asked=address, reason=error.details()
            )
            return False
        log.info("past samples read", asked=address)
        return True

    async def _choose_tubes(self, stub: tube_service_pb2_grpc.TubeServiceAsyncStub) -> None:
        """Sample the same tubes as the other node, if there are more than can have samples.

        This node cannot know which tubes were active last before its start.
        """
        names = self._samples.surplus_tubes()
        sampled: list[str] = []
        for first in range(0, len(names), LISTED_NAMES_MAX):
            some = names[first : first + LISTED_NAMES_MAX]
            request = pb.GetHistoryRequest(tubes=some, samples_max=1)
            answer = await stub.GetHistory(request, timeout=ASK_SECONDS)
            sampled += [one.tube for one in answer.histories]
        self._samples.activate(sampled)

    async def _fill(self, stub: tube_service_pb2_grpc.TubeServiceAsyncStub, step_ms: int) -> None:
        names = self._samples.sampled_tubes()
        requests = [pb.GetHistoryRequest(total=True, step_ms=step_ms)]
        for first in range(0, len(names), NAMES_MAX):
            some = names[first : first + NAMES_MAX]
            requests.append(pb.GetHistoryRequest(tubes=some, step_ms=step_ms))
        for request in requests:
            answer = await stub.GetHistory(request, timeout=ASK_SECONDS)
            if request.total:
                self._samples.begin_past(step_ms, answer.at_ms)
            for one in answer.histories:
                columns = {name: getattr(one, name) for name in COLUMNS}
                self._samples.fill_past(step_ms, one.tube, answer.at_ms, columns)
                await asyncio.sleep(0)

    @asynccontextmanager
    async def _tubes(
        self, address: str
    ) -> AsyncIterator[tube_service_pb2_grpc.TubeServiceAsyncStub]:
        """Open a channel to a node, and yield the stub of its TubeService."""
        channel = (
            grpc.aio.insecure_channel(address)
            if self._security is None
            else self._security.channel(address, "", ())
        )
        async with channel:
            yield tube_service_pb2_grpc.TubeServiceStub(channel)
