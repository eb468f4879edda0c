"""A node that follows, with a forwarder, and an upstream server in the place of the leader."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from taskraft_replication.core.types import MemberId, RaftRole, SoftState, Term
from taskraft_service.api.rpc.call_ends import END_CALLS_PATH
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.shared_calls import FORWARD_CALLS_PATH
from taskraft_service.api.rpc.status import STATUS_KEY, CallRefused, rpc_status
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.node_phases import PhaseMachine
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2

METHOD = "/taskraft.v1.TaskService/PutTasks"
ME, LEADER, NEXT_LEADER = MemberId(1), MemberId(2), MemberId(3)


class Lead:
    async def begin(self, term):
        pass

    async def before_transfer(self):
        pass

    def end(self):
        pass


class Upstream:
    """A server that gives the prepared answers and then echoes each request."""

    def __init__(self):
        self.answers = []
        self.calls = []
        self.ends = lambda _keys: None
        self.announced_bytes = 0
        self.messages = []
        self.outcomes = None
        """Returns the outcomes of the calls of one message; None: the node has no such method."""
        self.arrived = asyncio.Event()

    async def serve(self, raw, context):
        self.calls.append((raw, dict(context.invocation_metadata())))
        self.arrived.set()
        if self.announced_bytes:
            size = str(self.announced_bytes)
            await context.send_initial_metadata((("x-taskraft-answer-bytes", size),))
        if not self.answers:
            return raw
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, CallRefused):
            packed = rpc_status(answer).SerializeToString()
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, answer.message, ((STATUS_KEY, packed),)
            )
        return await context.abort(answer, "broken")

    async def forward_calls(self, raw, context):
        calls = forwarding_pb2.ForwardCallsRequest.FromString(raw).calls
        self.messages.append(calls)
        if self.outcomes is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        outcomes = self.outcomes(calls)
        if asyncio.isfuture(outcomes):
            outcomes = await outcomes
        if isinstance(outcomes, grpc.StatusCode):
            await context.abort(outcomes, "broken")
        return forwarding_pb2.ForwardCallsResponse(outcomes=outcomes).SerializeToString()

    async def end_calls(self, raw, _context):
        self.ends(list(forwarding_pb2.EndCallsRequest.FromString(raw).keys))
        return b""


class Bench:
    def __init__(self, upstream, leadership, forwarder):
        self.upstream, self.leadership, self.forwarder = upstream, leadership, forwarder

    def leads(self, leader, role=RaftRole.FOLLOWER, term=1):
        self.leadership.role_changed(SoftState(leader, role), Term(term))

    async def call(self, *, repeatable=False, deadline=None, **options):
        return await self.forwarder.forward(
            METHOD, b"raw", deadline, is_idempotent=lambda: repeatable, **options
        )


@asynccontextmanager
async def leader_bench():
    upstream = Upstream()
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(upstream.serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("taskraft.v1.TaskService", {"PutTasks": handler}),)
    )
    end_calls = grpc.unary_unary_rpc_method_handler(upstream.end_calls)
    name, method = END_CALLS_PATH.strip("/").split("/")
    forward_calls = grpc.unary_unary_rpc_method_handler(upstream.forward_calls)
    forward_method = FORWARD_CALLS_PATH.rpartition("/")[2]
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                name, {method: end_calls, forward_method: forward_calls}
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    members = {
        1: PeerAddress(1, "n1", "p:1", "127.0.0.1:1"),
        2: PeerAddress(2, "n2", "p:1", f"127.0.0.1:{port}"),
        3: PeerAddress(3, "n3", "p:1", f"127.0.0.1:{port}"),
    }
    phases = PhaseMachine()
    leadership = LeadershipTracker(phases, ME, members, Lead())
    leadership.caught_up()
    forwarder = Forwarder(leadership, 100)
    yield Bench(upstream, leadership, forwarder)
    await forwarder.close()
    await server.stop(None)
