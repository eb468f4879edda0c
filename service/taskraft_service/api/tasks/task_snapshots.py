"""Handle OpenTaskSnapshot and ReadTaskSnapshot: all tasks at one revision, from a frozen state.

The tasks are read on worker threads, in small parts: the interpreter lock lets the event loop run
between the parts, and a slow reader uses memory for one part only.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Final, Protocol

from taskraft.v1 import error_pb2
from taskraft.v1 import feed_service_pb2 as pb
from taskraft_service.access.caller import Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ExecutionSite,
    MessageStream,
    UnaryCall,
    UnaryMethod,
    parse_request,
)
from taskraft_service.api.rpc.request_steps import MESSAGE_STEPS
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.kept_snapshots import KeptSnapshots
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks.answers import encode_tasks
from taskraft_service.machine.apply_notifier import ApplyNotifier
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.state_records import stored_index
from taskraft_service.queue.reading.stored_tasks import IDS_END, StoredTasks
from taskraft_service.storage.frozen_store import FrozenStore
from taskraft_service.storage.snapshot import SnapshotUnsupported

KEEP_MS: Final = 600_000
KEEP_MS_MAX: Final = 3_600_000
PART_TASKS: Final = 200
"""Maximum number of tasks of one part; encoding them takes about two milliseconds."""
PART_BYTES: Final = 1 << 20
CHOKED_PAUSE_SECONDS: Final = 0.05
STEP_PAUSE_SECONDS: Final = 0.001
"""Pause of the worker thread between two steps: the event loop then gets the interpreter lock. A
thread that computes without a pause delays each of its turns by up to 5 ms."""
_TASKS: Final = pb.ReadTaskSnapshotResponse.TASKS_FIELD_NUMBER


class FrozenMachine(Protocol):
    """The state machine, as a source of frozen states."""

    @property
    def is_choked(self) -> bool:
        """Return whether ``collect`` would block until the disk catches up."""

    def collect(self) -> None:
        """Write all applied changes to the database."""

    def open_frozen(self) -> FrozenStore:
        """Copy the written changes, and open the copy; runs on a worker thread."""


class _TaskSnapshot:
    """An open frozen state; ``keep_seconds`` is the time to keep it after its last use."""

    def __init__(self, frozen: FrozenStore, keep_seconds: float, wall_offset_ms: int) -> None:
        self.revision = stored_index(frozen.store)
        self.tasks = StoredTasks(frozen.store, Limits())
        for _ in self.tasks.find_tubes():
            time.sleep(STEP_PAUSE_SECONDS)
        self.keep_seconds = keep_seconds
        self.wall_offset_ms = wall_offset_ms
        self.close = frozen.close


class TaskSnapshots:
    """The handlers of OpenTaskSnapshot and ReadTaskSnapshot.

    Args:
        node: name of this node.
        machine: the state machine.
        reader: reads the queue.
        apply_notifier: tells whether this node is stopping.
    """

    def __init__(
        self,
        node: str,
        machine: FrozenMachine,
        reader: QueueReader,
        apply_notifier: ApplyNotifier,
    ) -> None:
        self._node = node
        self._machine = machine
        self._reader = reader
        self._apply_notifier = apply_notifier
        self._kept: KeptSnapshots[_TaskSnapshot] = KeptSnapshots(node)

    def method(self) -> AnyUnaryMethod:
        """Return the method OpenTaskSnapshot."""
        return UnaryMethod(
            "OpenTaskSnapshot", pb.OpenTaskSnapshotRequest, ExecutionSite.ANY_NODE, self.open
        )

    async def open(
        self, call: UnaryCall[pb.OpenTaskSnapshotRequest]
    ) -> pb.OpenTaskSnapshotResponse:
        """Freeze the state, and describe its tubes.

        Raises:
            CallRefused: INVALID_FIELD; LIMIT_REACHED; NODE_BEHIND, the state is staler than
                requested; or NOT_IMPLEMENTED for a node in memory.
        """
        request = call.request
        violations = Violations()
        violations.check_consistency(request.consistency)
        violations.check_range("keep_ms", request.keep_ms, 0, KEEP_MS_MAX)
        violations.raise_if_any()
        answer = pb.OpenTaskSnapshotResponse(snapshot_id=uuid.uuid4().hex, node=self._node)

        async def create() -> _TaskSnapshot:
            await self._collect(request, answer)
            seconds = (request.keep_ms or KEEP_MS) / 1_000
            offset_ms = self._reader.wall_offset_ms
            freeze = self._machine.open_frozen
            return await asyncio.to_thread(_open, freeze, seconds, offset_ms)

        kept = await self._kept.add(answer.snapshot_id, call.caller.name, create)
        with self._kept.used(kept, kept.content.keep_seconds) as snapshot:
            if snapshot.revision < answer.revision:
                raise CallRefused(
                    error_pb2.Error.NODE_BEHIND,
                    f"node {self._node} cannot write entry {answer.revision} now; retry",
                )
            answer.revision = snapshot.revision
            async for part in call.steps.slices(snapshot.tasks.tubes, MESSAGE_STEPS):
                for tube in part:
                    if call.caller.may(Verb.READ, tube.name):
                        answer.tubes.add(
                            tube=tube.name,
                            first_id=tube.first_id,
                            last_id=tube.last_id,
                            tasks=tube.tasks,
                        )
        return answer

    async def _collect(
        self, request: pb.OpenTaskSnapshotRequest, answer: pb.OpenTaskSnapshotResponse
    ) -> None:
        """Write the applied changes, and note the position in the feed that they reach."""
        await self._reader.queue(request.consistency)
        while self._machine.is_choked:  # noqa: ASYNC110 - the database has no such event
            await asyncio.sleep(CHOKED_PAUSE_SECONDS)
        queue = self._reader.applied
        self._machine.collect()
        answer.revision = queue.applied_index
        answer.now_ms = self._reader.wall_now_ms()
        answer.cursor.feed_id = queue.feed.feed_id
        for view in queue.feed.views():
            answer.cursor.next_seq[view.partition] = view.high_seq

    async def read(self, raw: bytes, stream: MessageStream, caller: Caller) -> None:
        """Stream a range of the tasks of one tube.

        Raises:
            CallRefused: INVALID_FIELD; SNAPSHOT_NOT_FOUND; or DRAINING, this node is stopping.
        """
        request = parse_request(pb.ReadTaskSnapshotRequest, raw)
        caller.authorize(request)
        violations = Violations()
        violations.check_tube("tube", request.tube)
        violations.check_not_negative("after_id", request.after_id)
        violations.check_not_negative("last_id", request.last_id)
        violations.raise_if_any()
        kept = self._kept.find(request.snapshot_id)
        at, last_id, is_last = request.after_id, request.last_id or IDS_END - 1, False
        with self._kept.used(kept, kept.content.keep_seconds) as snapshot:
            while not is_last:
                if self._apply_notifier.ended:
                    raise CallRefused(error_pb2.Error.DRAINING, "this node is stopping")
                message, at, is_last = await asyncio.to_thread(
                    _part, snapshot, request, at, last_id
                )
                await stream.write(message)


def _open(
    freeze: Callable[[], FrozenStore], keep_seconds: float, wall_offset_ms: int
) -> _TaskSnapshot:
    """Open a new frozen state; on a worker thread."""
    try:
        frozen = freeze()
    except SnapshotUnsupported as error:
        raise CallRefused(error_pb2.Error.NOT_IMPLEMENTED, str(error)) from error
    try:
        return _TaskSnapshot(frozen, keep_seconds, wall_offset_ms)
    except BaseException:
        frozen.close()
        raise


def _part(
    snapshot: _TaskSnapshot, request: pb.ReadTaskSnapshotRequest, after_id: int, last_id: int
) -> tuple[bytes, int, bool]:
    """Return the next part as a message, its last id, and whether it is the last part."""
    part = snapshot.tasks.read(request.tube, after_id, last_id, PART_TASKS, PART_BYTES)
    tasks = encode_tasks(
        part.tasks, _TASKS, snapshot.wall_offset_ms, payload_omit=request.payload_omit
    )
    end = pb.ReadTaskSnapshotResponse(through_id=part.through_id, last=part.is_last)
    return b"".join((*tasks, end.SerializeToString())), part.through_id, part.is_last
