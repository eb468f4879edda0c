"""Hostile callers of a drill: the key of a removed node, a revoked token, and another principal.

A call that has an effect, or that shows something, is a breach. Only an answer of a node counts as
a refusal: a node that a fault has stopped refuses nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import grpc.aio
from google.protobuf.message import Message

from bench.worst.calls import methods_of_the_contract
from taskraft.v1 import cluster_service_pb2, session_service_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.peers.handshake import PROTOCOL_VERSION
from taskraft_replication.stubs.raft.v1 import raft_pb2
from taskraft_service.access.permissions import ALL_TUBES, ANY_TUBE
from tests.drill.caller import NO_ANSWERS
from tests.drill.drill_access import BAIT, CLUSTER, GONE, OWN, STREAMS_SHARE, DrillAccess
from tests.drill.faults import Scene
from tests.drill.workload import TUBES, Floor
from tools.local_node import Node
from tools.rights_table import Cell, cells

CALL_SECONDS: Final = 2.0
REVOKED_SECONDS: Final = 2.0
"""Time after which a revoked token opens nothing on any node."""
STREAM_SLACK_SECONDS: Final = 1.0
"""Time until this process has noticed the end of a stream, on a busy machine."""
PAUSE_SECONDS: Final = 0.02
GUESSES: Final = 50
"""Lease tokens of one guess, behind a token that was seen."""
TASKS: Final = "/taskraft.v1.TaskService/"
CLUSTERS: Final = "/taskraft.v1.ClusterService/"
PEERS: Final = "/taskraft.raft.v1.PeerService/"


@dataclass
class Findings:
    """What the hostile callers of a drill have tried."""

    refused: Counter[str] = field(default_factory=Counter)
    """Refused calls by actor."""
    breaches: list[str] = field(default_factory=list)
    """Calls that were not refused, and other broken promises."""
    answered: Counter[str] = field(default_factory=Counter)
    """Answered requests of a caller with all rights, by method."""
    unanswered: int = 0
    """Calls that failed without an answer of a node, because of a fault or too many calls."""

    def failed(self, name: str, error: grpc.aio.AioRpcError) -> None:
        """Count a call of a caller that failed."""
        if error.code() in NO_ANSWERS:
            self.unanswered += 1
        else:
            self.refused[name] += 1


class Hostile(ABC):
    """One hostile caller."""

    name = ""

    def __init__(self, scene: Scene, floor: Floor, findings: Findings) -> None:
        assert scene.access is not None, "the drill has no access control"
        self.access: DrillAccess = scene.access
        self.scene, self.floor, self.findings = scene, floor, findings
        self.draw = random.Random(f"{floor.seed}/{self.name}")

    async def prepare(self) -> None:  # noqa: B027 - some callers need nothing
        """Create what the caller needs, before the first fault."""

    def tried(self) -> int:
        """Return the number of calls that a node has answered as it should."""
        return self.findings.refused[self.name]

    @abstractmethod
    async def run(self) -> None:
        """Act until the drill is over."""


class Intruder(Hostile):
    """A hostile caller whose calls must all be refused."""

    def node(self) -> Node:
        """Return a node of the cluster, running or not."""
        return self.draw.choice(self.scene.cluster.nodes)

    async def create_tube(self, name: str) -> None:
        """Create a tube as the operator."""

        def create() -> None:
            with self.scene.client() as client:
                client.create_tube(name, timeout="20s")

        await asyncio.to_thread(create)

    async def expect_refusal(self, what: str, call: Awaitable[Any]) -> None:
        """Await a call, which must be refused."""
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            self.findings.failed(self.name, error)
        except asyncio.InvalidStateError:  # the call had ended before its request was written
            self.findings.unanswered += 1
        else:
            self.findings.breaches.append(f"{self.name}: {what}: {answer!r}"[:300])

    async def run(self) -> None:
        """Try until the drill is over."""
        while not self.floor.over.is_set():
            await self.attempt(self.node())
            await self.floor.pause(PAUSE_SECONDS)

    @abstractmethod
    async def attempt(self, node: Node) -> None:
        """Try everything once at one node."""


async def first_message(
    channel: grpc.aio.Channel,
    path: str,
    request: bytes,
    metadata: Sequence[tuple[str, str]] = (),
    *,
    is_stream: bool = False,
) -> Any:
    """Return the first message that a method answers with.

    Raises:
        grpc.aio.AioRpcError: the call failed, or ended without a message.
    """
    make = channel.stream_stream if is_stream else channel.unary_stream
    if is_stream:
        call = make(path)(metadata=metadata, timeout=CALL_SECONDS)
        await call.write(request)
    else:
        call = make(path)(request, metadata=metadata, timeout=CALL_SECONDS)
    try:
        answer = await call.read()
        if answer is grpc.aio.EOF:
            trailing = await call.trailing_metadata()
            raise grpc.aio.AioRpcError(await call.code(), grpc.aio.Metadata(), trailing)
        return answer
    finally:
        call.cancel()


class RemovedNode(Intruder):
    """The holder of the key of a node that was removed, at the peer ports of all nodes."""

    name = "removed node"

    async def prepare(self) -> None:
        """Let the operator add the node and remove it."""
        with self.scene.client() as client:
            client.add_member(GONE, "127.0.0.1:1", "127.0.0.1:2", timeout="20s")
            client.remove_member(GONE, timeout="20s")

    async def attempt(self, node: Node) -> None:
        """Try to become a member, to name principals, and to get the state."""
        hops = ("x-taskraft-hops", "1")
        claims = (
            (),
            (("x-taskraft-principal", "root"), hops),
            (("x-taskraft-principal", "worker"), hops, ("x-taskraft-peer", "ipv4:10.0.0.7:1")),
            (("x-taskraft-principal", "node/n1"), hops),
        )
        addition = cluster_service_pb2.AddMemberRequest(
            name=GONE, peer_address="127.0.0.1:1", address="127.0.0.1:2", directory_id="ab" * 16
        )
        put = pb.PutTasksRequest(tube="work", tasks=[{"payload": b"hostile"}])
        removal = cluster_service_pb2.RemoveMemberRequest(name="n1")
        hello = raft_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            cluster_id=CLUSTER,
            sender=self.draw.choice((1, 2, 3, 4, 99)),
            receiver=int(node.name[1:]),
            incarnation=1 << 40,
        )
        security = self.access.peer(GONE)
        async with security.channel(node.peer_address, node.name, ()) as channel:
            for metadata in claims:
                for path, request in (
                    (f"{CLUSTERS}AddMember", addition),
                    (f"{CLUSTERS}RemoveMember", removal),
                    (f"{CLUSTERS}SaveSnapshot", cluster_service_pb2.SaveSnapshotRequest()),
                    (f"{TASKS}PutTasks", put),
                ):
                    call = first_message(channel, path, request.SerializeToString(), metadata)
                    await self.expect_refusal(f"{path} as {metadata} at {node.name}", call)
            fetch = raft_pb2.FetchStateRequest(hello=hello).SerializeToString()
            call = first_message(channel, f"{PEERS}FetchState", fetch)
            await self.expect_refusal(f"FetchState at {node.name}", call)
            entries = raft_pb2.FetchEntriesRequest(hello=hello, first=2, last=9).SerializeToString()
            call = first_message(channel, f"{PEERS}FetchEntries", entries)
            await self.expect_refusal(f"FetchEntries at {node.name}", call)
            exchange = raft_pb2.ExchangeRequest(hello=hello).SerializeToString()
            call = first_message(channel, f"{PEERS}Exchange", exchange, is_stream=True)
            await self.expect_refusal(f"Exchange at {node.name}", call)


def aimed(cell: Cell, tube: str) -> Message | None:
    """Return the request of a cell for a tube; None if the cell needs no right on a name."""
    names = {name for _, name in cell.rights} - {ANY_TUBE, ALL_TUBES}
    if not names and not any(name == ALL_TUBES for _, name in cell.rights):
        return None
    request = type(cell.request)()
    request.CopyFrom(cell.request)
    _rename(request, names, tube)
    return request


def _rename(message: Any, names: set[str], tube: str) -> None:
    """Replace each text of a message that equals one of the names."""
    for kind, value in message.ListFields():
        if kind.message_type is not None:
            if kind.message_type.GetOptions().map_entry:
                continue
            for inner in value if kind.is_repeated else (value,):
                _rename(inner, names, tube)
        elif kind.is_repeated:
            value[:] = [tube if each in names else each for each in value]
        elif isinstance(value, str) and value in names:
            setattr(message, kind.name, tube)


def foreign_requests(tube: str) -> Iterator[tuple[str, Message, bool]]:
    """Yield path, request and whether the client streams, for each method that names a tube."""
    methods = {}
    for method in methods_of_the_contract():
        methods.setdefault(method.input_type.full_name, method)
    for cell in cells():
        request = aimed(cell, tube)
        if request is None:
            continue
        method = methods[request.DESCRIPTOR.full_name]
        path = f"/{method.containing_service.full_name}/{method.name}"
        yield path, request, method.client_streaming


class Stranger(Intruder):
    """A valid principal without rights on the tubes of the others; it has as many streams as it
    can get."""

    name = "stranger"

    async def prepare(self) -> None:
        """Create the own tube."""
        await self.create_tube(OWN)

    async def run(self) -> None:
        """Hold streams, and try until the drill is over."""
        streams = [asyncio.ensure_future(self._hold()) for _ in range(STREAMS_SHARE + 10)]
        await super().run()
        await asyncio.gather(*streams)

    async def _hold(self) -> None:
        """Open a stream on the own tube again and again."""
        opening = pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube=OWN)])
        )
        while not self.floor.over.is_set():
            async with self._channel(self.node()) as channel:
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    stream = channel.stream_stream(f"{TASKS}Subscribe")(timeout=10)
                    await stream.write(opening.SerializeToString())
                    while not self.floor.over.is_set():
                        if await stream.read() is grpc.aio.EOF:
                            break
            await self.floor.pause(0.5)

    @asynccontextmanager
    async def _channel(self, node: Node) -> AsyncIterator[grpc.aio.Channel]:
        async with self.access.channel("stranger", node.address) as channel:
            yield channel

    async def attempt(self, node: Node) -> None:
        """Call every method for a tube of others, and guess leases and sessions."""
        tube = self.draw.choice(tuple(TUBES))
        async with self._channel(node) as channel:
            for path, request, is_stream in foreign_requests(tube):
                if self.floor.over.is_set():
                    return
                call = first_message(
                    channel, path, request.SerializeToString(), is_stream=is_stream
                )
                await self.expect_refusal(f"{path} {request} at {node.name}", call)
            await self._guess(channel)

    async def _guess(self, channel: grpc.aio.Channel) -> None:
        """Settle leases of others, which are numbered densely, and use their sessions."""
        if not self.floor.spent:
            return
        _, _, token, session_id = self.floor.spent[-1]
        for kind in ("ack", "release", "bury", "reject", "touch"):
            settlement = pb.Settlement(tokens=range(token + 1, token + GUESSES))
            getattr(settlement, kind).SetInParent()
            request = pb.SettleTasksRequest(settlements=[settlement])
            answer = await self._answer(channel, "TaskService/SettleTasks", request)
            if answer is None:
                continue
            settled = pb.SettleTasksResponse.FromString(answer)
            if len(settled.errors) == len(settlement.tokens):
                self.findings.refused[self.name] += 1
            else:
                self.findings.breaches.append(f"stranger: {kind} of a guessed token: {settled}")
        keep = session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
        answer = await self._answer(channel, "SessionService/KeepSessions", keep)
        if answer is not None:
            kept = session_service_pb2.KeepSessionsResponse.FromString(answer)
            if kept.sessions:
                self.findings.breaches.append("stranger: kept the session of another principal")
        close = session_service_pb2.CloseSessionRequest(session_id=session_id)
        path = "/taskraft.v1.SessionService/CloseSession"
        call = first_message(channel, path, close.SerializeToString())
        await self.expect_refusal("CloseSession", call)

    async def _answer(
        self, channel: grpc.aio.Channel, method: str, request: Message
    ) -> bytes | None:
        """Return the answer of a call; None if the call fails."""
        make = channel.unary_unary(f"/taskraft.v1.{method}")
        try:
            return await make(request.SerializeToString(), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            self.findings.failed(self.name, error)
            return None


class Revoked(Intruder):
    """The holder of a token that is revoked again and again."""

    name = "revoked token"

    async def prepare(self) -> None:
        """Create the tube of the principal."""
        await self.create_tube(BAIT)

    async def attempt(self, node: Node) -> None:
        """Open a stream while the token is known, revoke the token, and go on."""
        self.access.set_revoked(is_known=True)
        async with self.access.channel("revoked", node.address) as channel:
            stream = await self._opened(channel)
            self.access.set_revoked(is_known=False)
            revoked_at = time.monotonic()
            ended = None if stream is None else asyncio.ensure_future(_ended(stream))
            await self.floor.pause(REVOKED_SECONDS)
            if time.monotonic() - revoked_at < REVOKED_SECONDS:
                return  # the drill is over
            await self._try_all(node)
            if ended is not None:
                until = revoked_at + REVOKED_SECONDS + STREAM_SLACK_SECONDS
                done, _ = await asyncio.wait((ended,), timeout=max(0, until - time.monotonic()))
                if not done:
                    self.findings.breaches.append(f"revoked token: a stream lives at {node.name}")
                ended.cancel()

    async def _opened(self, channel: grpc.aio.Channel) -> Any:
        """Return an open stream; None if the node does not accept the token in time."""
        opening = pb.SubscribeRequest(
            open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube=BAIT)], heartbeat_ms=1_000)
        )
        until = time.monotonic() + 5 * REVOKED_SECONDS
        while time.monotonic() < until and not self.floor.over.is_set():
            stream = channel.stream_stream(f"{TASKS}Subscribe")()
            try:
                await stream.write(opening.SerializeToString())
                async with asyncio.timeout(CALL_SECONDS):
                    if isinstance(await stream.read(), bytes):
                        return stream
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                pass
            stream.cancel()
            await self.floor.pause(0.2)
        return None

    async def _try_all(self, node: Node) -> None:
        requests: Sequence[tuple[str, Message]] = (
            (f"{TASKS}PutTasks", pb.PutTasksRequest(tube=BAIT, tasks=[{"payload": b"x"}])),
            (f"{TASKS}TakeTasks", pb.TakeTasksRequest(sources=[pb.TakeSource(tube=BAIT)])),
            (f"{TASKS}ListTasks", pb.ListTasksRequest(tube=BAIT)),
            ("/taskraft.v1.TubeService/ListTubes", tube_service_pb2.ListTubesRequest()),
            (f"{CLUSTERS}GetCaller", cluster_service_pb2.GetCallerRequest()),
            ("/taskraft.v1.SessionService/OpenSession", session_service_pb2.OpenSessionRequest()),
        )
        others = [one for one in self.scene.cluster.nodes if one is not node]
        for each in (node, *others):
            async with self.access.channel("revoked", each.address) as channel:
                for path, request in requests:
                    call = first_message(channel, path, request.SerializeToString())
                    await self.expect_refusal(f"{path} at {each.name}", call)


async def _ended(stream: Any) -> None:
    """Read a stream until it ends."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while await stream.read() is not grpc.aio.EOF:
            pass


INTRUDERS: Final[tuple[type[Hostile], ...]] = (RemovedNode, Stranger, Revoked)
