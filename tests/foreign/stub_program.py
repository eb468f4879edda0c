"""A client program for the conformance suite that uses the generated stubs alone.

An argument makes the program break one rule, so that a test sees the suite find the violation.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import sys
import threading
import time
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import (
    session_service_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
ATTEMPT_S, RETRY_S, RETRY_DELAY_S = 5, 20, 0.05
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error)
        self.error = error


def described(error):
    """Return code, reason and metadata of a refused call."""
    found = {"code": error.code().name, "message": error.details(), "reason": "", "metadata": {}}
    for key, content in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(content).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    found.update(reason=info.reason, metadata=dict(info.metadata))
    return found


class Stub:
    """The methods of two services on one channel."""

    def __init__(self, channel):
        vars(self).update(vars(task_service_pb2_grpc.TaskServiceStub(channel)))
        self.CloseSession = session_service_pb2_grpc.SessionServiceStub(channel).CloseSession


class Program:
    def __init__(self, addresses):
        channels = [grpc.insecure_channel(address) for address in addresses]
        self.stubs = itertools.cycle([Stub(channel) for channel in channels])
        self.stub = next(self.stubs)
        self.stream = None
        self.never = threading.Event()

    def call(self, method, request, timeout_s=ATTEMPT_S):
        """Call a method; after a lost connection, call the next node with the same request_id."""
        request.request_id = request.request_id or str(uuid.uuid4())
        end = time.monotonic() + RETRY_S
        while True:
            try:
                return getattr(self.stub, method)(request, timeout=timeout_s)
            except grpc.RpcError as error:
                if error.code() not in AGAIN or time.monotonic() > end or FAULT == "no-retry":
                    raise Refused(described(error)) from error
                if FAULT == "new-id":
                    request.request_id = str(uuid.uuid4())
                self.stub = next(self.stubs)
                self.never.wait(RETRY_DELAY_S)

    def put(self, tube, tasks, request_id="", client_id=""):
        request = pb.PutTasksRequest(request_id=request_id, client_id=client_id, tube=tube)
        for one in tasks:
            spec = request.tasks.add(payload=base64.b64decode(one["payload"]))
            for key, text in one.get("headers", {}).items():
                spec.headers[key] = base64.b64decode(text)
            if "priority" in one:
                spec.priority = int(one["priority"])
            if "delay_ms" in one:
                spec.delay_ms = int(one["delay_ms"])
        answer = self.call("PutTasks", request)
        return {"task_ids": [str(one) for one in answer.task_ids], "errors": items(answer.errors)}

    def take(self, tube, tasks_max, wait_ms, ttr_ms=None):
        request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube=tube)], tasks_max=tasks_max)
        request.wait_ms = int(wait_ms)
        if ttr_ms is not None:
            request.ttr_ms = int(ttr_ms)
        answer = self.call("TakeTasks", request, ATTEMPT_S + int(wait_ms) / 1_000)
        return {"tasks": [shown(task) for task in answer.tasks]}

    def settle(self, action, tokens, delay_ms=None, increment_ms=None):
        settlement = pb.Settlement(tokens=[int(token) for token in tokens])
        getattr(settlement, action).SetInParent()
        if delay_ms is not None:
            settlement.release.delay_ms = int(delay_ms)
        if increment_ms is not None:
            settlement.touch.increment_ms = int(increment_ms)
        answer = self.call("SettleTasks", pb.SettleTasksRequest(settlements=[settlement]))
        return {"errors": [] if FAULT == "silent" else items(answer.errors)}

    def subscribe(self, tube, credit):
        self.stream = Subscription(self, tube, credit)
        return {}

    def next(self, wait_ms):
        return {"task": self.stream.next(int(wait_ms) / 1_000)}

    def stream_ack(self, tokens):
        return {"errors": self.stream.acknowledge([int(token) for token in tokens])}

    def unsubscribe(self):
        self.stream.close()
        return {}


class Subscription:
    """A stream that is opened again with its session when it breaks."""

    def __init__(self, program, tube, credit):
        self.program, self.tube, self.credit = program, tube, credit
        self.tasks, self.answers = queue.Queue(), {}
        self.answered = threading.Condition()
        self.outgoing = None
        self.session = ""
        self.closed = threading.Event()
        self.open_credit = credit
        self.unanswered = {}
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.closed.is_set():
            self.outgoing = queue.SimpleQueue()
            opening = pb.SubscribeRequest.Open(
                sources=[pb.TakeSource(tube=self.tube)],
                session_id=self.session,
                session_ttr_ms=10_000,
            )
            self.outgoing.put(pb.SubscribeRequest(open=opening))
            credit = self.open_credit + (5 if FAULT == "too-much-credit" else 0)
            if credit:
                self.grant(credit)
            for request in list(self.unanswered.values()):
                self.outgoing.put(request)
            self.call = self.program.stub.Subscribe(iter(self.outgoing.get, None))
            try:
                for answer in self.call:
                    self.read(answer)
            except grpc.RpcError as error:
                found = described(error)
                if found["reason"] == "TUBE_NOT_FOUND" and FAULT != "opens-again":
                    self.tasks.put(Refused(found))
                    return
            if FAULT == "no-new-stream":
                return
            self.outgoing.put(None)
            self.program.stub = next(self.program.stubs)
            self.closed.wait(RETRY_DELAY_S)

    def grant(self, tasks):
        self.outgoing.put(pb.SubscribeRequest(credit=pb.SubscribeRequest.Credit(tasks=tasks)))

    def read(self, answer):
        if answer.opened.session_id:
            self.session = answer.opened.session_id
        for task in answer.tasks:
            self.open_credit -= 1
            self.tasks.put(shown(task))
        for settled in answer.settled:
            with self.answered:
                self.unanswered.pop(settled.request_id, None)
                self.answers[settled.request_id] = items(settled.errors)
                self.answered.notify_all()

    def next(self, wait_s):
        try:
            task = self.tasks.get(timeout=wait_s)
        except queue.Empty:
            return None
        if isinstance(task, Refused):
            self.tasks.put(task)
            raise task
        return task

    def acknowledge(self, tokens):
        key = str(uuid.uuid4())
        settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())
        request = pb.SubscribeRequest(request_id=key, idempotency_key=key, settlements=[settlement])
        self.unanswered[key] = request
        self.outgoing.put(request)
        self.open_credit += len(tokens)
        self.grant(len(tokens))
        with self.answered:
            assert self.answered.wait_for(lambda: key in self.answers, RETRY_S)
        return self.answers.pop(key)

    def close(self):
        self.closed.set()
        self.outgoing.put(None)
        self.call.cancel()
        if self.session and FAULT != "session-stays":
            self.program.call(
                "CloseSession",
                session_service_pb2.CloseSessionRequest(session_id=self.session, uncounted=True),
            )


def items(errors):
    return [{"item": one.item, "reason": task_reason(one.error)} for one in errors]


def task_reason(error):
    return type(error).Reason.Name(error.reason)


def shown(task: task_pb2.Task):
    token = float(task.token) if FAULT == "doubles" else task.token
    return {
        "id": str(task.id),
        "token": str(int(token)),
        "attempt": task.attempt,
        "payload": base64.b64encode(task.spec.payload).decode(),
        "headers": {key: base64.b64encode(one).decode() for key, one in task.spec.headers.items()},
    }


def main():
    program = Program(os.environ["TASKRAFT_TARGET"].split(","))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(program, command.pop("call"))(**command)
        except Refused as refused:
            answer = {"error": refused.error}
        if FAULT == "no-member":
            answer.pop("tasks", None)
        print("no json" if FAULT == "no-json" else json.dumps(answer), flush=True)
    if FAULT == "status":
        sys.exit(3)


if __name__ == "__main__":
    main()
