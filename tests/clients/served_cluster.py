"""A cluster with sockets: real gRPC servers in front of one node in memory, and faults on request.

The servers share the queue of the node. One server acts as the leader; the others forward calls to
the node, or refuse them. The cluster runs on its own event loop, so that blocking clients and
child processes can use it.
"""

import asyncio
import threading
from functools import partial

import grpc

from taskraft.testing._backend import cancel_all
from taskraft.v1 import (
    session_service_pb2,
    session_service_pb2_grpc,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.prompt_calls import LEADER_KEY
from taskraft_service.clock.cluster_clock import SYSTEM_CLOCKS
from taskraft_service.memory_node.direct_calls import DirectChannel
from taskraft_service.memory_node.memory_node import MemoryNode
from tests.clients.node_calls import NodeCalls, method_of
from tests.clients.refusals import Refusal

ANSWER_SECONDS_MAX = 10


class ServedContext:
    """The context of a gRPC call, which names the leader among the servers."""

    def __init__(self, cluster, node, context):
        self.node = node
        self._cluster = cluster
        self._context = context

    def __getattr__(self, name):
        return getattr(self._context, name)

    def _with_leader(self, metadata):
        others = ((key, value) for key, value in metadata if key != LEADER_KEY)
        return (*others, (LEADER_KEY, self._cluster.leader_address))

    def set_trailing_metadata(self, metadata):
        self._context.set_trailing_metadata(self._with_leader(metadata))

    async def send_initial_metadata(self, metadata):
        await self._context.send_initial_metadata(self._with_leader(metadata))

    async def abort(self, code, details="", metadata=()):
        await self._context.abort(code, details, self._with_leader(metadata))


class ServedNode(grpc.GenericRpcHandler):
    """The handlers of one server."""

    def __init__(self, cluster, number, handlers):
        self._cluster = cluster
        self._number = number
        self._handlers = handlers

    def service(self, details):
        """Return the handler of a method; None: no such method."""
        handler = self._handlers.get(details.method)
        if handler is None:
            return None
        method = method_of(details.method)
        handle = partial(self._handle, handler, method.client_streaming)
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(handle)
        # Some handlers of unary methods write their answer, as those of streams do.
        return grpc.unary_stream_rpc_method_handler(handle)

    async def _handle(self, handler, is_stream, raw, context):
        served = ServedContext(self._cluster, self._number, context)
        answer = await handler(None if is_stream else raw, served)
        if answer is not None:
            await context.write(answer)


class ServedCluster(NodeCalls):
    """Several servers with one queue; a context manager.

    The tube `emails` exists and keeps acknowledged tasks.
    """

    def __init__(self, nodes=1, *, forwards=True):
        super().__init__()
        self.forwards = forwards
        self.addresses = [""] * nodes
        self.servers = {}
        self.leader = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        self.run(self.start())
        return self

    def __exit__(self, *_):
        self.run(self.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def run(self, coroutine):
        """Run a coroutine on the cluster's event loop."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result(ANSWER_SECONDS_MAX)

    async def start(self):
        """Start the node and its servers, and create the tube."""
        self.node = MemoryNode(SYSTEM_CLOCKS)
        await self.node.start()
        self.unrecorded = DirectChannel(dict(self.node.handlers))
        options = tube_service_pb2.TubeOptions(on_ack=tube_service_pb2.TubeOptions.KEEP)
        tube = tube_service_pb2.Tube(
            name="emails", kind=tube_service_pb2.Tube.FIFOTTL, options=options
        )
        await tube_service_pb2_grpc.TubeServiceStub(self.unrecorded).CreateTube(
            tube_service_pb2.CreateTubeRequest(tube=tube)
        )
        self.record(self.node.handlers)
        for number in range(len(self.addresses)):
            await self.serve(number)

    async def serve(self, number):
        """Start a server; it keeps the address that it had before."""
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        server.add_generic_rpc_handlers((ServedNode(self, number, self.node.handlers),))
        port = server.add_insecure_port(self.addresses[number] or "127.0.0.1:0")
        self.addresses[number] = f"127.0.0.1:{port}"
        await server.start()
        self.servers[number] = server

    async def stop(self):
        """Stop the servers and the node; raise the error that broke the node, if there is one."""
        await asyncio.gather(*(server.stop(None) for server in self.servers.values()))
        self.node.depose()
        await cancel_all({asyncio.current_task()})
        if self.node.broken_by is not None:
            raise self.node.broken_by

    # ------------------------------------------------------------------------------ servers

    @property
    def target(self):
        """The addresses of all servers."""
        return ",".join(self.addresses)

    @property
    def leader_address(self):
        """The address of the server that acts as the leader."""
        return self.addresses[self.leader]

    def follower_refusal(self, node):
        """Return the refusal of a server that does not forward calls to the leader."""
        if node == self.leader or self.forwards:
            return None
        metadata = {"leader": self.leader_address}
        return Refusal("NOT_LEADER", grpc.StatusCode.UNAVAILABLE, metadata=metadata)

    def kill(self, number):
        """Stop a server without notice; its connections break."""
        self.run(self.servers.pop(number).stop(None))

    def elect(self, number):
        """Let another server act as the leader."""
        self.leader = number

    def go_away(self, reason, leader=""):
        """End all streams with a reason."""

        async def end():
            for stream in list(self.streams):
                await stream.go_away(reason, leader=leader)

        self.run(end())

    def hold_puts(self):
        """Delay puts until `let_puts_go`."""
        self.loop.call_soon_threadsafe(self.hold, "PutTasks")

    def let_puts_go(self):
        """Continue the delayed puts."""
        self.loop.call_soon_threadsafe(self.let_go, "PutTasks")

    # ------------------------------------------------------------------------------ state

    def tasks(self, tube="emails"):
        """Return all tasks of a tube."""
        stub = task_service_pb2_grpc.TaskServiceStub(self.unrecorded)

        async def fetch():
            return await stub.ListTasks(pb.ListTasksRequest(tube=tube, page_size=1_000))

        return list(self.run(fetch()).tasks)

    def states(self, tube="emails"):
        """Return the states of all tasks of a tube."""
        return [task.state for task in self.tasks(tube)]

    def _call_sessions(self, method, request):
        """Make an unrecorded call to the service of sessions."""

        async def call():
            stub = session_service_pb2_grpc.SessionServiceStub(self.unrecorded)
            return await getattr(stub, method)(request)

        return self.run(call())

    def open_session(self):
        """Open a session with a TTR of one hour; return its id."""
        request = session_service_pb2.OpenSessionRequest(ttr_ms=3_600_000)
        return self._call_sessions("OpenSession", request).session.session_id

    def close_session(self, session_id):
        """Close a session, as if it had expired."""
        request = session_service_pb2.CloseSessionRequest(session_id=session_id)
        self._call_sessions("CloseSession", request)

    def is_open(self, session_id):
        """Return whether a session exists; the session is kept alive."""
        request = session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
        return not self._call_sessions("KeepSessions", request).errors
