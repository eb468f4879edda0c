"""A client program for the conformance suite that uses the generated stubs alone.

An argument makes the program break one rule, so that a test sees the suite find the violation.
"""

from __future__ import annotations

import base64
import collections
import itertools
import json
import os
import queue
import random
import sys
import threading
import time
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import (
    error_pb2,
    session_service_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
ATTEMPT_S, RETRY_S = 5, 5 if FAULT else 20
PAUSE_S, PAUSE_S_MAX = 0.05, 1
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
SETTLED_AGAIN = [
    getattr(error_pb2.Error, reason)
    for reason in ("OVERLOADED", "DRAINING", "NO_LEADER", "NOT_LEADER", "COMMIT_UNKNOWN")
]
"""Reasons of `Settled.error` after which the same message can succeed."""
SETTLED_PAUSE_S = 0.2


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error)
        self.error = error


def described(error):
    """Return code, reason and metadata of a refused call; the wait is the one of RetryInfo."""
    found = {"code": error.code().name, "message": error.details(), "reason": "", "metadata": {}}
    wait_s = 0
    for key, content in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(content).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    found.update(reason=info.reason, metadata=dict(info.metadata))
                retry = error_details_pb2.RetryInfo()
                if detail.Unpack(retry):
                    wait_s = retry.retry_delay.ToTimedelta().total_seconds()
    return found, wait_s


def pause_s(failures, wait_s):
    """Return the wait of the server, or a pause that doubles with each failure up to a second."""
    return wait_s or min(PAUSE_S_MAX, PAUSE_S * 2 ** min(failures, 8)) * random.uniform(0.5, 1)


class Stub:
    """The methods of two services on one channel."""

    def __init__(self, channel):
        vars(self).update(vars(task_service_pb2_grpc.TaskServiceStub(channel)))
        self.CloseSession = session_service_pb2_grpc.SessionServiceStub(channel).CloseSession


class Program:
    def __init__(self, addresses):
        # By default, the library waits up to two minutes before it connects again.
        options = [("grpc.max_reconnect_backoff_ms", int(PAUSE_S_MAX * 1_000))]
        channels = [grpc.insecure_channel(address, options) for address in addresses]
        self.stubs = itertools.cycle([Stub(channel) for channel in channels])
        self.stub = next(self.stubs)
        self.stream = None
        self.never = threading.Event()

    def call(self, method, request, timeout_s=ATTEMPT_S):
        """Call a method; after a lost connection, call the next node with the same request_id."""
        request.request_id = request.request_id or str(uuid.uuid4())
        end = time.monotonic() + RETRY_S
        failures = 0
        while True:
            try:
                return getattr(self.stub, method)(request, timeout=timeout_s)
            except grpc.RpcError as error:
                refused, wait_s = described(error)
                is_final = not wait_s and error.code() not in AGAIN
                if is_final or time.monotonic() > end or FAULT == "no-retry":
                    raise Refused(refused) from error
                if FAULT == "new-id":
                    request.request_id = str(uuid.uuid4())
                self.stub = next(self.stubs)
                self.never.wait(pause_s(failures, wait_s))
                failures += 1

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

    def subscribe(self, tube, credit, session_ttr_ms="10000"):
        self.stream = Subscription(self, tube, credit, int(session_ttr_ms))
        return {}

    def next(self, wait_ms):
        return {"task": self.stream.next(int(wait_ms) / 1_000)}

    def stream_ack(self, tokens):
        return {"errors": self.stream.acknowledge([int(token) for token in tokens])}

    def unsubscribe(self):
        self.stream.close()
        return {}


def granted(tasks):
    return pb.SubscribeRequest(credit=pb.SubscribeRequest.Credit(tasks=tasks))


class Subscription:
    """A stream that is opened again with its session when it breaks."""

    def __init__(self, program, tube, credit, session_ttr_ms):
        self.program, self.tube, self.session_ttr_ms = program, tube, session_ttr_ms
        self.tasks, self.answers, self.unanswered = collections.deque(), {}, {}
        self.changed = threading.Condition()
        """Guards all that follows, and is notified of tasks, of answers and of the end."""
        self.held = {}
        """Tokens of this stream, and whether credit for a further task was granted."""
        self.credit = credit
        """Number of tasks that the server may still send."""
        self.session, self.failures = "", 0
        self.outgoing = None
        """Messages to send; None until the stream is open."""
        self.refused = None
        self.closed = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.closed.is_set():
            requests = queue.SimpleQueue()
            opening = pb.SubscribeRequest.Open(
                sources=[pb.TakeSource(tube=self.tube)],
                session_id=self.session,
                session_ttr_ms=self.session_ttr_ms,
            )
            requests.put(pb.SubscribeRequest(open=opening))
            self.call = self.program.stub.Subscribe(iter(requests.get, None))
            wait_s = 0
            try:
                for answer in self.call:
                    with self.changed:
                        self.read(answer, requests)
                        self.changed.notify_all()
            except grpc.RpcError as error:
                refused, wait_s = described(error)
                with self.changed:
                    self.ended(refused, wait_s)
                    self.changed.notify_all()
            if FAULT == "no-new-stream" or self.refused:
                return
            self.outgoing = None
            requests.put(None)
            self.program.stub = next(self.program.stubs)
            self.closed.wait(pause_s(self.failures, wait_s))
            self.failures += 1

    def ended(self, refused, wait_s):
        """Note why a stream ended."""
        if refused["reason"] == "SESSION_NOT_FOUND" and FAULT != "old-session":
            # The leases have ended: forget the tasks that nobody works on.
            for task in self.tasks:
                self.credit += not self.held.pop(int(task["token"]))
            self.tasks.clear()
            self.session = ""
        elif refused["reason"] and not wait_s and FAULT != "opens-again":
            self.refused = refused

    def read(self, answer, requests):
        if answer.HasField("opened"):
            self.opened(answer.opened, requests)
        for task in answer.tasks:
            self.credit -= 1
            self.held[task.token] = False
            self.tasks.append(shown(task))
        for settled in answer.settled:
            request = self.unanswered.get(settled.request_id)
            if request and settled.error.reason in SETTLED_AGAIN:
                threading.Timer(SETTLED_PAUSE_S, self.send, [request]).start()
            elif request:
                del self.unanswered[settled.request_id]
                self.answers[settled.request_id] = settled
                for token in () if settled.error.reason else request.settlements[0].tokens:
                    self.held.pop(token, None)

    def opened(self, opened, requests):
        """Release the tasks that were lost in transit, grant credit, and repeat settlements."""
        self.session, self.failures, self.outgoing = opened.session_id, 0, requests
        lost = [task.token for task in opened.held if task.token not in self.held]
        if lost and FAULT != "ignores-held":
            release = pb.Settlement.Release(delay_ms=0, uncounted=True)
            self.settlement(pb.Settlement(tokens=lost, release=release))
        if opened.held_continues:
            return
        credit = self.credit + (5 if FAULT == "too-much-credit" else 0)
        if credit:
            requests.put(granted(credit))
        for request in self.unanswered.values():
            requests.put(request)

    def settlement(self, settlement):
        """Return a message that stays unanswered until the server has answered it."""
        key = str(uuid.uuid4())
        request = pb.SubscribeRequest(request_id=key, idempotency_key=key, settlements=[settlement])
        self.unanswered[key] = request
        return request

    def send(self, request):
        """Send a settlement; without a stream, the next stream sends all that are unanswered."""
        with self.changed:
            if self.outgoing and request.request_id in self.unanswered:
                self.outgoing.put(request)

    def next(self, wait_s):
        with self.changed:
            self.changed.wait_for(lambda: self.tasks or self.refused, wait_s)
            if self.tasks:
                return self.tasks.popleft()
            if self.refused:
                raise Refused(self.refused)
            return None

    def acknowledge(self, tokens):
        settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())
        with self.changed:
            request = self.settlement(settlement)
            self.send(request)
            # Each task that was sent allows one further task, also if it is settled twice.
            tasks = [token for token in tokens if self.held.get(token) is False]
            self.held.update(dict.fromkeys(tasks, True))
            self.credit += len(tasks)
            if tasks and self.outgoing:
                self.outgoing.put(granted(len(tasks)))
            key = request.request_id
            assert self.changed.wait_for(lambda: key in self.answers, RETRY_S)
            settled = self.answers.pop(key)
        if settled.error.reason and FAULT != "no-settled-error":
            raise Refused(
                {
                    "code": "",
                    "reason": task_reason(settled.error),
                    "message": settled.error.message,
                    "metadata": dict(settled.error.metadata),
                }
            )
        return items(settled.errors)

    def close(self):
        self.closed.set()
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
