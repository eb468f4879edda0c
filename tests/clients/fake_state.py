"""Shared state of the nodes of a fake cluster: tasks, leases, sessions, errors."""

import asyncio
import itertools
from collections import defaultdict, deque

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb

State = task_pb2.Task.State


class Refused(Exception):
    """A typed error, as a node returns it."""

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
    """Replaces the replicated state: tasks, leases, sessions, responses by request key."""

    def __init__(self):
        self.tasks = defaultdict(dict)
        self.ready = defaultdict(deque)
        self.leases = {}
        self.sessions = {}
        self.answers = {}
        self.token = itertools.count(1)
        self.changed = asyncio.Event()
        self.now_ms = 1_000_000
        self.wall_offset_ms = 0
        self.cancel_tokens = []
        """Leases whose holders are asked to stop; each heartbeat of a holder is answered with
        them."""
        self.is_deaf_to_filters = False

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
                task.ttr_ms = task.spec.ttr_ms
                task.lease_until_ms = self.now_ms + task.ttr_ms if task.ttr_ms else 0
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
                    if settlement.touch.restart and task.ttr_ms:
                        task.lease_until_ms = self.now_ms + task.ttr_ms
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

    def states(self, tube):
        """Return the states of all tasks of a tube."""
        return [task.state for task in self.tasks[tube].values()]

    def expire(self, task_id, tube="emails"):
        """End the lease of a task, as if its TTR had expired."""
        task = self.tasks[tube][task_id]
        del self.leases[task.token]
        task.token = 0
        task.state = State.READY
        self.ready[tube].append(task)

    def held_by(self, session_id):
        return [task for task in self.leases.values() if task.session_id == session_id]

    def close_session(self, session_id):
        for task in self.held_by(session_id):
            settlement = pb.Settlement(release=pb.Settlement.Release(uncounted=True))
            self.end(task, "release", settlement)
        self.sessions.pop(session_id, None)
        self.wake()
