"""A cluster of nothing but transport: real gRPC, real stubs, and faults on request.

It keeps tasks in lists and knows just enough of the contract for a client to be tested against:
leaders that change, nodes that forward or refuse, answers that are lost after their effect, streams
that break. It runs on an event loop of its own, so that blocking clients can be tested too.
"""

# ruff: noqa: N802, TRY301 - gRPC methods are PascalCase, and faults are raised where they strike.

import asyncio
import itertools
import threading
import uuid
from collections import defaultdict, deque

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from taskraft.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    error_pb2,
    feed_service_pb2,
    feed_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)

pb = task_service_pb2
State = task_pb2.Task.State


class Refused(Exception):
    """A typed error, as a node answers it."""

    def __init__(self, reason, code, *, retry_ms=None, metadata=None, violations=()):
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.retry_ms = retry_ms
        self.metadata = metadata or {}
        self.violations = violations

    def status(self):
        details = [
            error_details_pb2.ErrorInfo(
                reason=self.reason, domain="taskraft.v1", metadata=self.metadata
            )
        ]
        if self.retry_ms is not None:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(self.retry_ms)
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        if self.violations:
            violation = error_details_pb2.BadRequest.FieldViolation
            details.append(
                error_details_pb2.BadRequest(
                    field_violations=[
                        violation(field=field, description=text) for field, text in self.violations
                    ]
                )
            )
        packed = []
        for detail in details:
            packed.append(any_pb2.Any())
            packed[-1].Pack(detail)
        status = status_pb2.Status(
            code=self.code.value[0], message=f"refused: {self.reason}", details=packed
        )
        return rpc_status.to_status(status)


def item_error(item, reason, **metadata):
    error = error_pb2.Error(
        reason=error_pb2.Error.Reason.Value(reason), message=reason.lower(), metadata=metadata
    )
    return error_pb2.ItemError(item=item, error=error)


class Tasks:
    """What a replicated log would give: tasks, leases, sessions, answers by request_id."""

    def __init__(self):
        self.tasks = defaultdict(dict)
        self.ready = defaultdict(deque)
        self.leases = {}
        self.sessions = {}
        self.answers = {}
        self.token = itertools.count(1)
        self.changed = asyncio.Event()
        self.now_ms = 1_000_000

    def put(self, request):
        if request.tube == "missing":
            raise Refused("TUBE_NOT_FOUND", grpc.StatusCode.NOT_FOUND)
        response = pb.PutTasksResponse(revision=1)
        for item, spec in enumerate(request.tasks):
            if spec.payload == b"refuse":
                response.task_ids.append(0)
                response.errors.append(item_error(item, "KEY_TAKEN", task_id="1"))
                continue
            task_id = len(self.tasks[request.tube]) + 1
            task = task_pb2.Task(
                tube=request.tube, id=task_id, spec=spec, state=State.READY, created_ms=self.now_ms
            )
            self.tasks[request.tube][task_id] = task
            self.ready[request.tube].append(task)
            response.task_ids.append(task_id)
        self.wake()
        return response

    def wake(self):
        self.changed.set()
        self.changed = asyncio.Event()

    def take(self, tubes, tasks_max, session_id):
        taken = []
        for tube in tubes:
            ready = self.ready[tube]
            while ready and len(taken) < tasks_max:
                task = ready.popleft()
                task.token = next(self.token)
                task.state = State.TAKEN
                task.attempt += 1
                task.since_ms = self.now_ms
                task.session_id = session_id
                self.leases[task.token] = task
                taken.append(task)
        return taken

    def settle(self, settlements):
        errors, touched, position = [], [], 0
        for settlement in settlements:
            action = settlement.WhichOneof("action")
            for token in settlement.tokens:
                task = self.leases.get(token)
                if task is None:
                    errors.append(item_error(position, "LEASE_STALE"))
                elif action == "touch":
                    task.lease_until_ms += settlement.touch.increment_ms
                    touched.append(pb.TouchedLease(token=token, lease_until_ms=task.lease_until_ms))
                else:
                    self.end(task, action, settlement)
                position += 1
        self.wake()
        return errors, touched

    def end(self, task, action, settlement):
        del self.leases[task.token]
        task.token = 0
        task.session_id = ""
        if action == "ack":
            task.state = State.DONE
            task.result = settlement.ack.result
        elif action == "release":
            task.state = State.READY
            task.failure.CopyFrom(settlement.release.failure)
            self.ready[task.tube].append(task)
        else:
            task.state = State.BURIED
            task.failure.CopyFrom(getattr(settlement, action).failure)

    def held_by(self, session_id):
        return [task for task in self.leases.values() if task.session_id == session_id]

    def close_session(self, session_id):
        for task in self.held_by(session_id):
            settlement = pb.Settlement(release=pb.Settlement.Release(uncounted=True))
            self.end(task, "release", settlement)
        self.sessions.pop(session_id, None)
        self.wake()


class Node(
    task_service_pb2_grpc.TaskServiceServicer,
    tube_service_pb2_grpc.TubeServiceServicer,
    session_service_pb2_grpc.SessionServiceServicer,
    cluster_service_pb2_grpc.ClusterServiceServicer,
    feed_service_pb2_grpc.FeedServiceServicer,
):
    """One node; followers refuse with the leader's address, or forward."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.address = ""
        self.streams = set()

    @property
    def state(self):
        return self.cluster.state

    async def answer(self, request, context, do):
        """Answer a unary call: fault first, then the effect once per request_id, then fault."""
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
            answers = self.state.answers
            if request_id and request_id in answers:
                known, response = answers[request_id]
                if known != request.SerializeToString(deterministic=True):
                    raise Refused("REQUEST_ID_REUSED", grpc.StatusCode.ALREADY_EXISTS)
            else:
                response = do(request)
                if asyncio.iscoroutine(response):
                    response = await response
                if request_id:
                    answers[request_id] = (request.SerializeToString(deterministic=True), response)
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
            tubes = [tube_service_pb2.Tube(name=name, kind=2) for name in names[start : start + 1]]
            return tube_service_pb2.ListTubesResponse(tubes=tubes, next_page_token=token)

        return await self.answer(request, context, page)

    async def GetStatistics(self, request, context):
        def count(request):
            response = tube_service_pb2.GetStatisticsResponse(now_ms=self.state.now_ms)
            for name in request.tubes or sorted(self.state.tasks):
                if name in self.state.tasks:
                    states = [task.state for task in self.state.tasks[name].values()]
                    tasks = tube_service_pb2.TubeStatistics.Tasks(
                        ready=states.count(State.READY), total=len(states)
                    )
                    response.tubes.add(tube=name, tasks=tasks)
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
            event = feed_service_pb2.ChangeEvent(seq=seq, tube="emails", task_id=seq + 1, kind=1)
            yield feed_service_pb2.ReadChangesResponse(
                from_seq=seq, next_seq=seq + 1, rows=1, events=[event]
            )
            if self.cluster.next_fault("ReadChanges"):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the node stops")
        if not request.to_seq:
            await asyncio.Event().wait()


class Stream:
    """One subscription as a node speaks it."""

    def __init__(self, node, context):
        self.node = node
        self.context = context
        self.tubes = []
        self.session_id = ""
        self.credit = 0
        self.granted = []
        self.pump = None
        self.writing = asyncio.Lock()

    async def write(self, response):
        """Write one message; gRPC allows one at a time."""
        async with self.writing:
            await self.context.write(response)

    @property
    def state(self):
        return self.node.state

    async def run(self, requests):
        cluster = self.node.cluster
        first = await anext(aiter(requests))
        if cluster.leader_address != self.node.address:
            await self.go_away("NOT_LEADER", leader=cluster.leader_address)
            return
        self.tubes = [source.tube for source in first.open.sources]
        self.session_id = first.open.session_id
        if self.session_id and self.session_id not in self.state.sessions:
            await self.go_away("SESSION_NOT_FOUND")
            return
        if not self.session_id:
            self.session_id = str(uuid.uuid4())
            self.state.sessions[self.session_id] = session_service_pb2.Session(
                session_id=self.session_id, name=first.open.session_name
            )
        held = []
        for task in self.state.held_by(self.session_id):
            held.append(task_pb2.Task())
            held[-1].CopyFrom(task)
            held[-1].spec.ClearField("payload")
        opened = pb.SubscribeResponse.Opened(session_id=self.session_id, held=held)
        await self.write(pb.SubscribeResponse(opened=opened))
        self.pump = asyncio.create_task(self.send_tasks())
        try:
            async for request in requests:
                cluster.note("StreamMessage", self.node, request)
                await self.hear(request)
        finally:
            self.pump.cancel()

    async def hear(self, request):
        if request.HasField("credit"):
            self.credit += request.credit.tasks
            self.granted.append(request.credit.tasks)
            self.state.wake()
        if request.heartbeat and not self.node.cluster.is_silent:
            heartbeat = pb.SubscribeResponse.Heartbeat(
                now_ms=self.state.now_ms, leader=self.node.cluster.leader_address
            )
            await self.write(pb.SubscribeResponse(heartbeat=heartbeat))
        if request.settlements:
            await self.settle(request)

    async def settle(self, request):
        fault = self.node.cluster.next_fault("StreamSettle")
        answers = self.state.answers
        settled = pb.SubscribeResponse.Settled(request_id=request.request_id)
        if fault is not None and not fault.is_after:
            settled.error.reason = error_pb2.Error.Reason.Value(fault.refusal.reason)
            await self.write(pb.SubscribeResponse(settled=[settled]))
            return
        if request.request_id in answers:
            settled = answers[request.request_id]
        else:
            errors, touched = self.state.settle(request.settlements)
            settled.errors.extend(errors)
            settled.touched.extend(touched)
            answers[request.request_id] = settled
        if fault is not None:
            await self.context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        await self.write(pb.SubscribeResponse(settled=[settled]))

    async def send_tasks(self):
        while True:
            changed = self.state.changed
            if self.credit and (tasks := self.state.take(self.tubes, self.credit, self.session_id)):
                self.credit -= len(tasks)
                if not self.node.cluster.loses_tasks:
                    await self.write(pb.SubscribeResponse(tasks=tasks))
            await changed.wait()

    async def go_away(self, reason, leader="", retry_ms=0):
        error = error_pb2.Error(reason=error_pb2.Error.Reason.Value(reason))
        go_away = pb.SubscribeResponse.GoAway(error=error, leader=leader, retry_ms=retry_ms)
        await self.write(pb.SubscribeResponse(go_away=go_away))


class Fault:
    def __init__(self, refusal, *, is_after):
        self.refusal = refusal
        self.is_after = is_after


class FakeCluster:
    """Several nodes with one state; use it as a context."""

    def __init__(self, nodes=1, *, forwards=True):
        self.forwards = forwards
        self.is_silent = False
        self.loses_tasks = False
        self.gate = None
        self.calls = []
        self.faults = defaultdict(deque)
        self.nodes = [Node(self) for _ in range(nodes)]
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
        """Run a coroutine on the cluster's loop."""
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
        """Let the next calls of a method have their effect and answer that nothing is known."""
        refusal = Refused("COMMIT_UNKNOWN", grpc.StatusCode.UNAVAILABLE)
        self.faults[method].extend(Fault(refusal, is_after=True) for _ in range(times))

    def next_fault(self, method):
        return self.faults[method].popleft() if self.faults[method] else None

    def kill(self, number):
        """Stop a node without a word; its connections break."""
        self.run(self.servers.pop(self.nodes[number]).stop(None))

    def elect(self, number):
        """Let another node lead."""
        self.leader = self.nodes[number]

    def go_away(self, reason, leader=""):
        """End all streams with a reason."""

        async def end():
            for node in self.nodes:
                for stream in list(node.streams):
                    await stream.go_away(reason, leader=leader)

        self.run(end())

    def hold_puts(self):
        """Let puts wait until `let_puts_go`."""

        async def close():
            self.gate = asyncio.Event()

        self.run(close())

    def let_puts_go(self):
        async def open_():
            self.gate.set()

        self.run(open_())
