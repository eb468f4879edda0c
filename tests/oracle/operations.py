"""Execute the operations of traces on tasks and tubes through the contract.

Times in traces are seconds, possibly with fractions; the contract has milliseconds. Arguments that
the contract cannot express (a text as an id, for example) are refused here, as by any client.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskraft.v1 import session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.oracle.connection import Connection
from tests.oracle.refusals import (
    INVALID,
    NOT_TAKEN,
    TEMPORARY,
    TUBE_FULL,
    TUBE_NOT_FOUND,
    UNKNOWN_SESSION,
    UNKNOWN_TUBE_TYPE,
    Refused,
    refused_item,
    whole_answer,
)
from tests.oracle.trace import Json

PROFILE: Final = "tarantool"
NO_SUBQUEUE: Final = "nil"
"""Name, in traces, of the sub-queue of a task that names no sub-queue."""
MS_MAX: Final = 2**63 - 1

Tube = tube_service_pb2.Tube
Options = tube_service_pb2.TubeOptions
Spec = task_pb2.TaskSpec

KINDS: Final[Mapping[str, int]] = {
    "fifo": Tube.FIFO,
    "fifottl": Tube.FIFOTTL,
    "limfifottl": Tube.LIMFIFOTTL,
    "utube": Tube.UTUBE,
    "utubettl": Tube.UTUBETTL,
}
KIND_NAMES: Final = {number: name for name, number in KINDS.items()}
TIMED_KINDS: Final = frozenset({"fifottl", "limfifottl", "utubettl"})
SUBQUEUE_KINDS: Final = frozenset({"utube", "utubettl"})
TIMES: Final = ("ttl", "ttr", "delay")


def type_of(tube: tube_service_pb2.Tube) -> str:
    """Return the type of a tube; for a custom tube this is the name of its driver."""
    return tube.driver if tube.kind == Tube.CUSTOM else KIND_NAMES[tube.kind]


def milliseconds(seconds: Json) -> int:
    """Convert seconds to milliseconds, limited to the range from 0 to the maximum.

    Raises:
        Refused: the value is not a number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise Refused(INVALID, text=f"{seconds!r} is not a duration in seconds")
    if math.isinf(seconds) or seconds * 1000 >= MS_MAX:
        return MS_MAX
    return max(0, round(seconds * 1000))


def whole(number: Json) -> int:
    """Return a whole number.

    Raises:
        Refused: the value is not a whole number.
    """
    if isinstance(number, bool) or not isinstance(number, int):
        raise Refused(INVALID, text=f"{number!r} is not a whole number")
    return number


@dataclass(slots=True)
class Lease:
    """The session that holds a task, and its lease token."""

    session_id: str
    token: int


class Operations:
    """The operations on tasks and tubes, with the shared state of all clients.

    The shared state is the content of each task and the tokens of the leases. A token belongs to
    the session that took the task, so every connection in that session may use it.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.contents: dict[tuple[str, int], Json] = {}
        self.leases: dict[tuple[str, int], Lease] = {}
        self.in_replicaset = False
        self.temporary: set[str] = set()

    # ------------------------------------------------------------------------------ tubes

    def create_tube(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Create a tube, or return the existing one."""
        name, kind, asked = arguments["tube"], arguments["type"], arguments.get("options") or {}
        lenient = asked.get("if_not_exists") is True and name in self.kinds
        if not lenient:
            if asked.get("temporary") and self.in_replicaset:
                raise Refused(TEMPORARY)
            if not isinstance(kind, str):
                raise Refused(UNKNOWN_TUBE_TYPE, text=str(kind))
        tube = Tube(name=name)
        if kind in KINDS or lenient:
            tube.kind = KINDS.get(kind, Tube.FIFO)  # type: ignore[assignment]  # a number
        else:
            tube.kind, tube.driver = Tube.CUSTOM, kind
        self._fill_options(tube.options, kind, asked)
        request = tube_service_pb2.CreateTubeRequest(
            tube=tube, if_not_exists=bool(asked.get("if_not_exists")), profile=PROFILE
        )
        answer = by.stubs.call(by.stubs.tubes.CreateTube, request)
        self.kinds[name] = type_of(answer.tube)
        if answer.tube.options.durability == Options.TEMPORARY:
            self.temporary.add(name)
        return {"type": self.kinds[name]}

    @staticmethod
    def _fill_options(options: Options, kind: str, asked: Mapping[str, Json]) -> None:
        if asked.get("temporary"):
            options.durability = Options.TEMPORARY
        if kind in TIMED_KINDS:
            if asked.get("ttl") is not None:
                options.ttl_ms = milliseconds(asked["ttl"])
            if asked.get("ttr") is not None:
                options.ttr_ms = milliseconds(asked["ttr"])
            if asked.get("pri") is not None:
                options.priority = whole(asked["pri"])
        if kind == "limfifottl" and asked.get("capacity"):
            options.capacity_tasks = math.ceil(asked["capacity"])

    def drop(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Drop a tube."""
        name = arguments["tube"]
        by.stubs.call(by.stubs.tubes.DropTube, tube_service_pb2.DropTubeRequest(name=name))
        self.kinds.pop(name, None)
        self.temporary.discard(name)
        return True

    def truncate(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Remove all tasks of a tube."""
        request = tube_service_pb2.TruncateTubeRequest(name=arguments["tube"])
        by.stubs.call(by.stubs.tubes.TruncateTube, request)

    def release_all(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Release all TAKEN tasks of a tube."""
        request = tube_service_pb2.ReleaseAllRequest(name=arguments["tube"])
        by.stubs.call(by.stubs.tubes.ReleaseAll, request)

    # ------------------------------------------------------------------------------ put and take

    def put_request(self, arguments: Mapping[str, Json]) -> pb.PutTasksRequest:
        """Return the request of a put.

        Raises:
            Refused: the contract cannot express an argument.
        """
        tube, options = arguments["tube"], arguments.get("options")
        if "data" not in arguments:
            raise Refused(INVALID, text="no data")
        kind = self.kinds.get(tube, "")
        asked = options if isinstance(options, Mapping) else {}
        spec = Spec(payload=json.dumps(arguments["data"]).encode(), content_type="application/json")
        if kind in TIMED_KINDS:
            for name in TIMES:
                if asked.get(name) is not None:
                    setattr(spec, f"{name}_ms", milliseconds(asked[name]))
            if asked.get("pri") is not None:
                spec.priority = whole(asked["pri"])
        if kind in SUBQUEUE_KINDS:
            spec.subqueue = _text(asked.get("utube"))
        request = pb.PutTasksRequest(tube=tube, tasks=[spec])
        if kind == "limfifottl" and asked.get("timeout") is not None:
            request.room_wait_ms = milliseconds(asked["timeout"])
        return request

    def put_answer(self, arguments: Mapping[str, Json], answer: pb.PutTasksResponse) -> Json:
        """Return the answer of a put: the task, or None if the tube was full."""
        for item in answer.errors:
            refusal = refused_item(item.error)
            if refusal.reason == TUBE_FULL:
                return None
            raise refusal
        tube, task_id = arguments["tube"], answer.task_ids[0]
        self.contents[tube, task_id] = arguments["data"]
        options = arguments.get("options")
        asked = options if isinstance(options, Mapping) else {}
        is_late = self.kinds[tube] in TIMED_KINDS and milliseconds(asked.get("delay") or 0) > 0
        return self._shown(tube, task_id, "DELAYED" if is_late else "READY")

    def take_request(self, by: Connection, arguments: Mapping[str, Json]) -> pb.TakeTasksRequest:
        """Return the request of a take; without a timeout it waits for the maximum time."""
        request = pb.TakeTasksRequest(
            sources=[pb.TakeSource(tube=arguments["tube"])], session_id=by.session_id
        )
        if arguments.get("timeout") is not None:
            request.wait_ms = milliseconds(arguments["timeout"])
        return request

    def take_answer(
        self, session_id: str, arguments: Mapping[str, Json], answer: pb.TakeTasksResponse
    ) -> Json:
        """Return the answer of a take, and store the lease."""
        if not answer.tasks:
            return None
        (task,) = answer.tasks
        self.leases[arguments["tube"], task.id] = Lease(session_id, task.token)
        data = json.loads(task.spec.payload)
        return {"id": task.id, "state": task_pb2.Task.State.Name(task.state), "data": data}

    # ------------------------------------------------------------------------------ holders

    def ack(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Acknowledge a task."""
        settlement = pb.Settlement(ack=pb.Settlement.Ack())
        return self._settle(by, arguments, settlement, "DONE")

    def release(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Release a task."""
        delay_ms = 0
        if self.kinds.get(arguments["tube"]) in TIMED_KINDS:
            delay_ms = milliseconds((arguments.get("options") or {}).get("delay") or 0)
        settlement = pb.Settlement(release=pb.Settlement.Release(delay_ms=delay_ms))
        return self._settle(by, arguments, settlement, "DELAYED" if delay_ms else "READY")

    def touch(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Extend a lease; an extension by 0 checks only the tube."""
        increment = arguments.get("increment")
        increment_ms = 0 if increment is None else milliseconds(increment)
        if increment_ms == 0:
            self.check_tube(by, arguments["tube"])
            return None
        settlement = pb.Settlement(touch=pb.Settlement.Touch(increment_ms=increment_ms))
        return self._settle(by, arguments, settlement, "TAKEN")

    def _settle(
        self,
        by: Connection,
        arguments: Mapping[str, Json],
        settlement: pb.Settlement,
        state: str,
    ) -> Json:
        tube, task_id = arguments["tube"], _id(arguments)
        lease = self.leases.get((tube, task_id))
        if lease is None or lease.session_id != by.session_id:
            self.check_tube(by, tube)
            raise Refused(NOT_TAKEN)
        settlement.tokens.append(lease.token)
        request = pb.SettleTasksRequest(settlements=[settlement])
        whole_answer(by.stubs.call(by.stubs.tasks.SettleTasks, request))
        return self._shown(tube, task_id, state)

    # ------------------------------------------------------------------------------ anybody

    def peek(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Return a task."""
        selector = task_pb2.TaskSelector(ids=[_id(arguments)])
        request = pb.GetTasksRequest(tube=arguments["tube"], selector=selector)
        (task,) = whole_answer(by.stubs.call(by.stubs.tasks.GetTasks, request)).tasks
        data = json.loads(task.spec.payload)
        return {"id": task.id, "state": task_pb2.Task.State.Name(task.state), "data": data}

    def bury(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Bury a task; a TAKEN task is buried by its token (in traces any client may bury)."""
        tube, task_id = arguments["tube"], _id(arguments)
        lease = self.leases.get((tube, task_id))
        if lease is not None:
            settlement = pb.Settlement(tokens=[lease.token], bury=pb.Settlement.Bury())
            settle = pb.SettleTasksRequest(settlements=[settlement])
            if not by.stubs.call(by.stubs.tasks.SettleTasks, settle).errors:
                return self._shown(tube, task_id, "BURIED")
        request = pb.BuryTasksRequest(tube=tube, selector=task_pb2.TaskSelector(ids=[task_id]))
        whole_answer(by.stubs.call(by.stubs.tasks.BuryTasks, request))
        return self._shown(tube, task_id, "BURIED")

    def delete(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Delete a task."""
        tube, task_id = arguments["tube"], _id(arguments)
        request = pb.DeleteTasksRequest(tube=tube, selector=task_pb2.TaskSelector(ids=[task_id]))
        whole_answer(by.stubs.call(by.stubs.tasks.DeleteTasks, request))
        return self._shown(tube, task_id, "DONE")

    def kick(self, by: Connection, arguments: Mapping[str, Json]) -> Json:
        """Kick buried tasks."""
        count = arguments.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int | float):
            raise Refused(INVALID, text=f"{count!r} is no number")
        if math.floor(count) <= 0:
            self.check_tube(by, arguments["tube"])
            return 0
        request = pb.KickTasksRequest(tube=arguments["tube"], count=math.floor(count))
        return by.stubs.call(by.stubs.tasks.KickTasks, request).count

    # ------------------------------------------------------------------------------ sessions

    @staticmethod
    def identify(by: Connection, session_id: str | None) -> str | None:
        """Switch to another session; return the previous one.

        Raises:
            Refused: the session id is malformed or unknown.
        """
        if session_id is None:
            _ = by.session_id
            return None
        keep = session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
        if session_id != by.known_session_id:
            for item in by.stubs.call(by.stubs.sessions.KeepSessions, keep).errors:
                raise Refused(UNKNOWN_SESSION, text=item.error.message)
        return by.join(session_id)

    # ------------------------------------------------------------------------------ together

    @staticmethod
    def check_tube(by: Connection, tube: str) -> None:
        """Refuse if the tube does not exist or the cluster has no leader."""
        request = tube_service_pb2.ListTubesRequest(names=[tube])
        if not by.stubs.call(by.stubs.tubes.ListTubes, request).tubes:
            raise Refused(TUBE_NOT_FOUND)

    def _shown(self, tube: str, task_id: int, state: str) -> dict[str, Any]:
        return {"id": task_id, "state": state, "data": self.contents.get((tube, task_id))}


def _id(arguments: Mapping[str, Json]) -> int:
    task_id = whole(arguments.get("id"))
    if task_id < 0:
        raise Refused(INVALID, text=f"{task_id} is no id")
    return task_id


def _text(subqueue: Json) -> str:
    """Convert the name of a sub-queue to text, as the oracle does with any value."""
    if subqueue is None:
        return NO_SUBQUEUE
    if isinstance(subqueue, bool):
        return str(subqueue).lower()
    return str(subqueue)
