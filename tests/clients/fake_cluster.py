"""A fake cluster with real gRPC transport and stubs, and faults on request.

The cluster keeps tasks in lists and implements the part of the API that the client tests need:
changes of leader, nodes that forward or refuse, responses that are lost after their effect, and
streams that break. The cluster runs on its own event loop, so that blocking clients can be tested
too.
"""

# ruff: noqa: N802, TRY301 - gRPC methods are PascalCase, and a fault is raised inside the call.

import asyncio
import threading
import uuid
from collections import defaultdict, deque

import grpc

from taskraft.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    feed_service_pb2,
    feed_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from tests.clients.fake_state import Refused, State, Tasks, item_error
from tests.clients.fake_stream import Stream


class FakeNode(
    task_service_pb2_grpc.TaskServiceServicer,
    tube_service_pb2_grpc.TubeServiceServicer,
    session_service_pb2_grpc.SessionServiceServicer,
    cluster_service_pb2_grpc.ClusterServiceServicer,
    feed_service_pb2_grpc.FeedServiceServicer,
):
    """One node of the fake cluster.

    A follower refuses a call with the leader's address, or forwards the call.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self.address = ""
        self.streams = set()

    @property
    def state(self):
        return self.cluster.state

    async def answer(self, request, context, do):
        """Answer a unary call: faults before the effect, the effect, faults after it.

        A request_id has its effect once.
        """
        method = type(request).__name__.removesuffix("Request")
        leader = self.cluster.leader_address
        context.set_trailing_metadata((("x-taskraft-leader", leader),))
        self.cluster.note(method, self, request)
        try:
            fault = self.cluster.next_fault(method)
            if fault is not None and not fault.is_after:
                raise fault.refusal
            if leader != self.address and not self.cluster.forwards:
                metadata = {"leader": leader}
                raise Refused("NOT_LEADER", grpc.StatusCode.UNAVAILABLE, metadata=metadata)
            request_id = getattr(request, "request_id", "")
            key = (getattr(request, "client_id", ""), request_id)
            answers = self.state.answers
            if request_id and key in answers:
                known, response = answers[key]
                if known != request.SerializeToString(deterministic=True):
                    raise Refused("REQUEST_ID_REUSED", grpc.StatusCode.ALREADY_EXISTS)
            else:
                response = do(request)
                if asyncio.iscoroutine(response):
                    response = await response
                if request_id:
                    answers[key] = (request.SerializeToString(deterministic=True), response)
            if fault is not None:
                raise fault.refusal
        except Refused as refused:
            status = refused.status()
            metadata = (*status.trailing_metadata, ("x-taskraft-leader", leader))
            await context.abort(status.code, status.details, metadata)
        return response

    # ------------------------------------------------------------------------------- tasks

    async def PutTasks(self, request, context):
        return await self.answer(request, context, self.put_slowly)

    async def put_slowly(self, request):
        if self.cluster.gate is not None:
            await self.cluster.gate.wait()
        return self.state.put(request)

    async def TakeTasks(self, request, context):
        return await self.answer(request, context, self.take)

    async def take(self, request):
        if request.session_id and request.session_id not in self.state.sessions:
            raise Refused("SESSION_NOT_FOUND", grpc.StatusCode.NOT_FOUND)
        tubes = [source.tube for source in request.sources]
        loop = asyncio.get_running_loop()
        end = loop.time() + request.wait_ms / 1_000
        while True:
            changed = self.state.changed
            tasks = self.state.take(tubes, request.tasks_max or 1, request.session_id)
            if tasks or loop.time() >= end:
                return pb.TakeTasksResponse(tasks=tasks, now_ms=self.state.now_ms)
            try:
                await asyncio.wait_for(changed.wait(), end - loop.time())
            except TimeoutError:
                continue

    async def SettleTasks(self, request, context):
        def settle(request):
            errors, touched = self.state.settle(request.settlements)
            return pb.SettleTasksResponse(errors=errors, touched=touched)

        return await self.answer(request, context, settle)

    async def GetTasks(self, request, context):
        def get(request):
            tasks = self.state.tasks[request.tube]
            response = pb.GetTasksResponse()
            for item, task_id in enumerate(request.selector.ids):
                if task_id in tasks:
                    response.tasks.append(tasks[task_id])
                else:
                    response.errors.append(item_error(item, "TASK_NOT_FOUND"))
            return response

        return await self.answer(request, context, get)

    async def ListTasks(self, request, context):
        def page(request):
            start = int(request.page_token or 0)
            tasks = list(self.state.tasks[request.tube].values())
            token = str(start + 2) if start + 2 < len(tasks) else ""
            return pb.ListTasksResponse(tasks=tasks[start : start + 2], next_page_token=token)

        return await self.answer(request, context, page)

    async def KickTasks(self, request, context):
        def kick(request):
            buried = [
                task
                for task in self.state.tasks[request.tube].values()
                if task.state == State.BURIED
                and (not request.selector.ids or task.id in request.selector.ids)
            ]
            for task in buried[: request.count or None]:
                task.state = State.READY
                self.state.ready[request.tube].append(task)
            return pb.KickTasksResponse(count=len(buried[: request.count or None]))

        return await self.answer(request, context, kick)

    async def DeleteTasks(self, request, context):
        def delete(request):
            response = pb.DeleteTasksResponse()
            for item, task_id in enumerate(request.selector.ids):
                if self.state.tasks[request.tube].pop(task_id, None) is None:
                    response.errors.append(item_error(item, "TASK_NOT_FOUND"))
                else:
                    response.count += 1
            return response

        return await self.answer(request, context, delete)

    async def Subscribe(self, requests, context):
        self.cluster.note("Subscribe", self, None)
        stream = Stream(self, context)
        self.streams.add(stream)
        try:
            await stream.run(requests)
        finally:
            self.streams.discard(stream)

    # --------------------------------------------------------------- tubes, sessions, cluster

    async def CreateTube(self, request, context):
        return await self.answer(
            request, context, lambda _: tube_service_pb2.CreateTubeResponse(tube=request.tube)
        )

    async def DropTube(self, request, context):
        return await self.answer(
            request, context, lambda _: tube_service_pb2.DropTubeResponse(tasks=3)
        )

    async def ListTubes(self, request, context):
        def page(request):
            names = sorted(self.state.tasks)
            start = int(request.page_token or 0)
            token = str(start + 1) if start + 1 < len(names) else ""
            policy = task_pb2.RetryPolicy(attempts_max=20, backoff_ms=1_000, backoff_ms_max=600_000)
            options = tube_service_pb2.TubeOptions(retry=policy)
            tubes = [
                tube_service_pb2.Tube(name=name, kind=2, options=options)
                for name in names[start : start + 1]
            ]
            return tube_service_pb2.ListTubesResponse(tubes=tubes, next_page_token=token)

        return await self.answer(request, context, page)

    async def GetStatistics(self, request, context):
        def count(request):
            response = tube_service_pb2.GetStatisticsResponse(now_ms=self.state.now_ms)
            names = [name for name in sorted(self.state.tasks) if name in (request.tubes or [name])]
            start = int(request.page_token or 0)
            for name in names:
                states = self.state.states(name)
                response.total.tasks.total += len(states)
                if name == names[start]:  # A page holds one tube.
                    tasks = tube_service_pb2.TubeStatistics.Tasks(
                        ready=states.count(State.READY), total=len(states)
                    )
                    response.tubes.add(tube=name, tasks=tasks)
            if start + 1 < len(names):
                response.next_page_token = str(start + 1)
            return response

        return await self.answer(request, context, count)

    async def OpenSession(self, request, context):
        def open_session(request):
            session = session_service_pb2.Session(
                session_id=str(uuid.uuid4()), name=request.name, ttr_ms=request.ttr_ms
            )
            self.state.sessions[session.session_id] = session
            return session_service_pb2.OpenSessionResponse(session=session)

        return await self.answer(request, context, open_session)

    async def KeepSessions(self, request, context):
        def keep(request):
            response = session_service_pb2.KeepSessionsResponse()
            for item, session_id in enumerate(request.session_ids):
                if session_id in self.state.sessions:
                    response.sessions.append(self.state.sessions[session_id])
                else:
                    response.errors.append(item_error(item, "SESSION_NOT_FOUND"))
            return response

        return await self.answer(request, context, keep)

    async def CloseSession(self, request, context):
        def close(request):
            self.state.close_session(request.session_id)
            return session_service_pb2.CloseSessionResponse()

        return await self.answer(request, context, close)

    async def GetClusterState(self, request, context):
        def describe(_request):
            response = cluster_service_pb2.GetClusterStateResponse(
                cluster_id="c1", node="n1", leader="n1", leader_address=self.cluster.leader_address
            )
            for number, node in enumerate(self.cluster.nodes, start=1):
                response.members.add(
                    id=number,
                    name=f"n{number}",
                    address=node.address,
                    leader=node.address == self.cluster.leader_address,
                    suffrage=cluster_service_pb2.Member.VOTER,
                    joined=True,
                )
            return response

        return await self.answer(request, context, describe)

    async def GetServerInfo(self, request, context):
        info = cluster_service_pb2.GetServerInfoResponse(version="0.1.0", node="n1")
        return await self.answer(request, context, lambda _: info)

    # ---------------------------------------------------------------------------------- feed

    async def DescribeFeed(self, request, context):
        partition = feed_service_pb2.FeedPartition(partition=0, low_seq=0, high_seq=3)
        feed = feed_service_pb2.DescribeFeedResponse(feed_id="f1", partitions=[partition])
        return await self.answer(request, context, lambda _: feed)

    async def ReadChanges(self, request, context):
        self.cluster.note("ReadChanges", self, request)
        end = request.to_seq or 5
        for seq in range(request.from_seq, end):
            event = feed_service_pb2.ChangeEvent(
                seq=seq, tube="emails", task_id=seq + 1, kind=1, at_ms=self.cluster.state.now_ms
            )
            yield feed_service_pb2.ReadChangesResponse(
                from_seq=seq, next_seq=seq + 1, rows=1, events=[event]
            )
            if self.cluster.next_fault("ReadChanges"):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the node stops")
        if not request.to_seq:
            await asyncio.Event().wait()


class Fault:
    def __init__(self, refusal, *, is_after):
        self.refusal = refusal
        self.is_after = is_after


class FakeCluster:
    """Several nodes with shared state; a context manager."""

    def __init__(self, nodes=1, *, forwards=True):
        self.forwards = forwards
        self.is_silent = False
        self.loses_tasks = False
        self.gate = None
        self.calls = []
        self.faults = defaultdict(deque)
        self.nodes = [FakeNode(self) for _ in range(nodes)]
        self.servers = {}
        self.leader = self.nodes[0]
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
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    async def start(self):
        self.state = Tasks()
        for node in self.nodes:
            await self.serve(node)

    async def serve(self, node):
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        task_service_pb2_grpc.add_TaskServiceServicer_to_server(node, server)
        tube_service_pb2_grpc.add_TubeServiceServicer_to_server(node, server)
        session_service_pb2_grpc.add_SessionServiceServicer_to_server(node, server)
        cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(node, server)
        feed_service_pb2_grpc.add_FeedServiceServicer_to_server(node, server)
        port = server.add_insecure_port(node.address or "127.0.0.1:0")
        node.address = f"127.0.0.1:{port}"
        await server.start()
        self.servers[node] = server

    async def stop(self):
        await asyncio.gather(*(server.stop(None) for server in self.servers.values()))

    @property
    def target(self):
        return ",".join(node.address for node in self.nodes)

    @property
    def leader_address(self):
        return self.leader.address

    def note(self, method, node, request):
        self.calls.append((method, self.nodes.index(node), request))

    def requests(self, method):
        return [request for name, _, request in self.calls if name == method]

    def asked(self, method):
        return [node for name, node, _ in self.calls if name == method]

    def refuse(self, method, reason, code=grpc.StatusCode.UNAVAILABLE, times=1, **details):
        """Refuse the next calls of a method before they have an effect."""
        for _ in range(times):
            self.faults[method].append(Fault(Refused(reason, code, **details), is_after=False))

    def lose_answer(self, method, times=1):
        """Execute the next calls of a method and answer that the outcome is unknown."""
        refusal = Refused("COMMIT_UNKNOWN", grpc.StatusCode.UNAVAILABLE)
        self.faults[method].extend(Fault(refusal, is_after=True) for _ in range(times))

    def next_fault(self, method):
        return self.faults[method].popleft() if self.faults[method] else None

    def states(self, tube="emails"):
        """Return the states of all tasks of a tube."""
        return self.state.states(tube)

    def kill(self, number):
        """Stop a node without notice; its connections break."""
        self.run(self.servers.pop(self.nodes[number]).stop(None))

    def elect(self, number):
        """Make another node the leader."""
        self.leader = self.nodes[number]

    def go_away(self, reason, leader=""):
        """End all streams with a reason."""

        async def end():
            for node in self.nodes:
                for stream in list(node.streams):
                    await stream.go_away(reason, leader=leader)

        self.run(end())

    def hold_puts(self):
        """Delay puts until `let_puts_go`."""

        async def close():
            self.gate = asyncio.Event()

        self.run(close())

    def let_puts_go(self):
        async def open_():
            self.gate.set()

        self.run(open_())
