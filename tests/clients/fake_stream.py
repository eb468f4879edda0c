"""The server side of one subscription of a fake cluster."""

import asyncio
import uuid

import grpc

from taskraft.v1 import error_pb2, session_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb


class Stream:
    """The server side of one subscription."""

    def __init__(self, node, context):
        self.node = node
        self.context = context
        self.tubes = []
        self.session_id = ""
        self.credit = 0
        self.granted = []
        self.wants_none = False
        self.pump = None
        self.writing = asyncio.Lock()

    async def write(self, response):
        """Write one message; gRPC allows one write at a time."""
        async with self.writing:
            await self.context.write(response)

    @property
    def state(self):
        return self.node.state

    async def run(self, requests):
        cluster = self.node.cluster
        first = await anext(aiter(requests))
        cluster.note("StreamOpen", self.node, first)
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
        if request.HasField("filter"):
            self.wants_none = request.filter.none and not self.state.is_deaf_to_filters
        if request.HasField("credit"):
            self.credit += request.credit.tasks
            self.granted.append(request.credit.tasks)
            self.state.wake()
        if request.heartbeat and not self.node.cluster.is_silent:
            heartbeat = pb.SubscribeResponse.Heartbeat(
                now_ms=self.state.now_ms,
                leader=self.node.cluster.leader_address,
                cancel_tokens=self.state.cancel_tokens,
                wall_offset_ms=self.state.wall_offset_ms,
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
        key = request.idempotency_key
        if key and key in answers:
            settled.MergeFrom(answers[key])
        else:
            errors, touched = self.state.settle(request.settlements)
            settled.errors.extend(errors)
            settled.touched.extend(touched)
            if key:
                answers[key] = pb.SubscribeResponse.Settled(errors=errors, touched=touched)
        if fault is not None:
            await self.context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        await self.write(pb.SubscribeResponse(settled=[settled]))

    async def send_tasks(self):
        while True:
            changed = self.state.changed
            wanted = 0 if self.wants_none else self.credit
            if wanted and (tasks := self.state.take(self.tubes, wanted, self.session_id)):
                self.credit -= len(tasks)
                if not self.node.cluster.loses_tasks:
                    await self.write(pb.SubscribeResponse(tasks=tasks))
            await changed.wait()

    async def go_away(self, reason, leader="", retry_ms=0):
        error = error_pb2.Error(reason=error_pb2.Error.Reason.Value(reason))
        go_away = pb.SubscribeResponse.GoAway(error=error, leader=leader, retry_ms=retry_ms)
        await self.write(pb.SubscribeResponse(go_away=go_away))
