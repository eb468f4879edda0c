"""Follow one put, one take and one acknowledgement through a node, and count the Python calls.

The node runs in this process, with real gRPC, a real log and a real store. The client runs in a
separate thread, and its calls do not count. A call of the node counts from the moment at which a
function of the node receives the request until that function returns the answer, on every thread of
the node. Only functions of ``taskraft_service`` and ``taskraft_replication`` count; functions of
libraries and of generated stubs do not count. A comprehension belongs to the function around it. A
coroutine counts once, however often it continues.

Each request is repeated, and the round with the fewest calls is reported: in some rounds timers of
the node fire, which adds calls.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import grpc
import structlog

import taskraft_replication
import taskraft_service
from taskraft.v1 import (
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.process.node_server import NodeServer

ROUNDS: Final = 60
"""Default number of rounds that are recorded."""

WARM_UP_ROUNDS: Final = 20
"""Number of rounds before the recording, which fill the caches of the node."""

CALL_SECONDS_MAX: Final = 20
TUBE: Final = "emails"
PAYLOAD: Final = b"x" * 100
VERBS: Final = ("put", "take", "ack")

_FOLDERS: Final = tuple(
    Path(str(package.__file__)).parent for package in (taskraft_service, taskraft_replication)
)
_INLINE: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
"""Names of code objects that are part of the function around them."""

_REQUEST_CONTEXT: Final = "_ServicerContext"
"""Class of an argument that identifies the function that receives a request."""


@dataclass(slots=True, frozen=True)
class Step:
    """One call of a function of the node."""

    depth: int
    """Number of functions of the node below this function on the stack."""
    file: str
    function: str
    caller: str
    """File of the function of the node that made the call; empty if a library made it."""
    thread: str


@dataclass(slots=True, frozen=True)
class Trace:
    """The calls that one request took, in the order in which they began."""

    steps: Sequence[Step]

    @property
    def size(self) -> tuple[int, int, int]:
        """Calls, distinct files, and calls from one file to another."""
        files = {step.file for step in self.steps}
        moves = sum(step.caller not in {"", step.file} for step in self.steps)
        return len(self.steps), len(files), moves

    def __str__(self) -> str:
        calls, files, moves = self.size
        return f"{files} files, {calls} calls, {moves} moves"

    def way(self) -> Iterator[str]:
        """Yield one line for each call, indented by its depth."""
        for step in self.steps:
            thread = "" if step.thread == "MainThread" else f"  [{step.thread}]"
            yield f"{'  ' * step.depth}{step.file}:{step.function}{thread}"


@cache
def file_of(code: CodeType) -> str:
    """Return the file of a function of the node; empty if calls of the function do not count."""
    path = Path(code.co_filename)
    if code.co_name in _INLINE or "_pb2" in path.name:
        return ""
    for folder in _FOLDERS:
        if folder in path.parents:
            return str(path.relative_to(folder.parent))
    return ""


@cache
def _entry_offset(code: CodeType) -> int:
    """Return the instruction offset of a frame whose function has just been called."""
    return next(found.offset for found in dis.get_instructions(code) if found.opname == "RESUME")


def _callers(frame: FrameType) -> Iterator[str]:
    """Yield the files of the functions of the node below a frame, the nearest first."""
    below = frame.f_back
    while below is not None:
        if file := file_of(below.f_code):
            yield file
        below = below.f_back


class Recorder:
    """Records the calls of the node's functions while a request is executed.

    ``sys.setprofile`` reports each time that a Python frame is entered. A coroutine that continues
    is reported too; the instruction offset of its frame distinguishes this from a call.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._is_armed = False
        self._receiver: FrameType | None = None
        """Frame of the function that received the request, until it returns the answer."""

    def install(self) -> None:
        """Watch this thread, and each thread that starts later."""
        threading.setprofile(self._happened)
        sys.setprofile(self._happened)

    @staticmethod
    def uninstall() -> None:
        """Stop watching this thread and new threads."""
        threading.setprofile(None)
        sys.setprofile(None)

    def arm(self) -> None:
        """Record the next request that arrives."""
        self._steps, self._is_armed = [], True

    def recorded(self) -> Trace:
        """Return the calls of the last request."""
        assert self._steps, "no request arrived"
        return Trace(self._steps)

    def _happened(self, frame: FrameType, event: str, _: object) -> None:
        if self._receiver is None and not self._is_armed:
            return
        if event == "return" and frame is self._receiver:
            # ``sys.setprofile`` reports a coroutine that waits as if it returned.
            if dis.opname[frame.f_code.co_code[frame.f_lasti]] != "YIELD_VALUE":
                self._receiver = None
        elif event == "call" and (file := file_of(frame.f_code)):
            self._entered(frame, file)

    def _entered(self, frame: FrameType, file: str) -> None:
        if frame.f_lasti != _entry_offset(frame.f_code):
            return
        if self._receiver is None:
            if not any(type(each).__name__ == _REQUEST_CONTEXT for each in frame.f_locals.values()):
                return
            self._is_armed, self._receiver = False, frame
        callers = list(_callers(frame))
        thread = threading.current_thread().name.rstrip("-_0123456789")
        caller = callers[0] if callers else ""
        self._steps.append(Step(len(callers), file, frame.f_code.co_qualname, caller, thread))


class Client:
    """Sends the requests, from a thread that is not watched.

    A request has the fields that the Python client fills in: a request id in each mutation.
    """

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._tasks = task_service_pb2_grpc.TaskServiceStub(self._channel)
        self._tubes = tube_service_pb2_grpc.TubeServiceStub(self._channel)
        self._requests = 0
        self._token = 0

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def create_tube(self) -> None:
        """Create the tube, once the node leads."""
        tube = tube_service_pb2.Tube(name=TUBE, kind=tube_service_pb2.Tube.FIFOTTL)
        request = tube_service_pb2.CreateTubeRequest(tube=tube)
        self._tubes.CreateTube(request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)

    def send(self, verb: str) -> None:
        """Put one task, take it, or acknowledge it."""
        self._requests += 1
        request_id = f"{self._requests:032x}"
        if verb == "put":
            tasks = [task_pb2.TaskSpec(payload=PAYLOAD)]
            put = task_service_pb2.PutTasksRequest(tube=TUBE, tasks=tasks, request_id=request_id)
            self._tasks.PutTasks(put, timeout=CALL_SECONDS_MAX)
        elif verb == "take":
            sources = [task_service_pb2.TakeSource(tube=TUBE)]
            take = task_service_pb2.TakeTasksRequest(
                sources=sources, tasks_max=1, request_id=request_id
            )
            (task,) = self._tasks.TakeTasks(take, timeout=CALL_SECONDS_MAX).tasks
            self._token = task.token
        else:
            ack = task_service_pb2.Settlement(
                tokens=[self._token], ack=task_service_pb2.Settlement.Ack()
            )
            settle = task_service_pb2.SettleTasksRequest(settlements=[ack], request_id=request_id)
            self._tasks.SettleTasks(settle, timeout=CALL_SECONDS_MAX)


@asynccontextmanager
async def running_node(data_dir: Path) -> AsyncIterator[NodeServer]:
    """Run a cluster of one node with default settings, on free ports."""
    config = ServerConfig(
        node_name="traced",
        data_dir=data_dir,
        listen="127.0.0.1:0",
        peer_listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        edge="grpc",  # always installed; ``_REQUEST_CONTEXT`` names its context
    )
    server = await NodeServer.open(config)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _rounds(recorder: Recorder, port: int, rounds: int) -> Mapping[str, Trace]:
    """Send the requests from this thread; return the shortest trace of each verb."""
    sys.setprofile(None)
    client = Client(port)
    client.create_tube()
    best: dict[str, Trace] = {}
    for number in range(WARM_UP_ROUNDS + rounds):
        for verb in VERBS:
            recorder.arm()
            client.send(verb)
            if number >= WARM_UP_ROUNDS:
                found = recorder.recorded()
                best[verb] = min(best.get(verb, found), found, key=lambda trace: trace.size)
    client.close()
    return best


async def trace(rounds: int = ROUNDS) -> Mapping[str, Trace]:
    """Run a node, and return the shortest trace of each verb out of some rounds."""
    recorder = Recorder()
    recorder.install()
    try:
        with tempfile.TemporaryDirectory(prefix="taskraft-trace-") as folder:
            async with running_node(Path(folder) / "data") as server:
                return await asyncio.to_thread(_rounds, recorder, server.client_port, rounds)
    finally:
        recorder.uninstall()


def main() -> None:
    """Print one line each for put, take and ack; print all calls of one of them on demand."""
    parser = argparse.ArgumentParser(prog="make trace", description=__doc__)
    parser.add_argument("--way", choices=VERBS, help="also print every call of this verb")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds to record")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    traces = asyncio.run(trace(arguments.rounds))
    for verb, found in traces.items():
        print(f"{verb}: {found}")
    if arguments.way:
        print(*traces[arguments.way].way(), sep="\n")


if __name__ == "__main__":
    main()
