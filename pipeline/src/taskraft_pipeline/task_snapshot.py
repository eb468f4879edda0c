"""Open a snapshot of all tasks on a node, divide it among Spark tasks, and read it completely."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from taskraft.v1.feed_service_pb2 import OpenTaskSnapshotRequest, ReadTaskSnapshotRequest
from taskraft.v1.task_pb2 import Consistency
from taskraft_pipeline.errors import FeedBroken, SnapshotExpired, error_info
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.offsets import EVENTS_PER_TASK_MIN, Offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from taskraft.v1.feed_service_pb2 import ReadTaskSnapshotResponse, TaskSnapshotTube
    from taskraft_pipeline.options import Options


@dataclass(slots=True, frozen=True)
class TaskRange:
    """Tasks of one tube with ids above ``after_id``, up to ``last_id``; about ``tasks`` tasks."""

    tube: str
    after_id: int
    last_id: int
    tasks: int


@dataclass(slots=True, frozen=True)
class TaskSnapshot:
    """A snapshot that one node keeps.

    Attributes:
        snapshot_id: identity of the snapshot on its node.
        endpoint: address of the node.
        revision: log index; events of the feed with a greater revision are not in the snapshot.
        cursor: position in the feed; all events before it are in the snapshot.
        ranges: the tubes with tasks.
    """

    snapshot_id: str
    endpoint: str
    revision: int
    cursor: Offset
    ranges: tuple[TaskRange, ...]


def open_snapshot(options: Options) -> TaskSnapshot:
    """Open a snapshot of all acknowledged changes, on a follower if one answers.

    Raises:
        FeedRefused, FeedUnreachable: see `FeedClient.handle_failure`.
    """
    with FeedClient(options.endpoints, options) as client:
        nodes = describe(client, is_linearizable=False).nodes(options.endpoints)
    request = OpenTaskSnapshotRequest(
        consistency=Consistency(level=Consistency.LINEARIZABLE), keep_ms=options.snapshot_ttl_ms
    )
    with FeedClient(nodes.for_task(0), options) as client:
        answer = client.call(lambda stub, seconds: stub.OpenTaskSnapshot(request, timeout=seconds))
        return TaskSnapshot(
            answer.snapshot_id,
            client.endpoint,
            answer.revision,
            Offset(answer.cursor.feed_id, dict(answer.cursor.next_seq)),
            tuple(_range(tube) for tube in answer.tubes if _is_wanted(tube, options.tubes)),
        )


def _is_wanted(tube: TaskSnapshotTube, tubes: Sequence[str]) -> bool:
    return not tubes or tube.tube in tubes


def _range(tube: TaskSnapshotTube) -> TaskRange:
    return TaskRange(tube.tube, tube.first_id - 1, tube.last_id, tube.tasks)


def split_ranges(whole: Iterable[TaskRange], tasks_per_task: int) -> list[tuple[TaskRange, ...]]:
    """Divide ranges into the work of Spark tasks.

    A tube is cut into pieces of equally many ids, as many as it has multiples of
    ``tasks_per_task``. Small pieces share a Spark task until it has EVENTS_PER_TASK_MIN tasks.
    """
    assert tasks_per_task > 0
    found: list[list[TaskRange]] = []
    room = 0
    for piece in (piece for one in whole for piece in _cut(one, tasks_per_task)):
        if piece.tasks <= room:
            found[-1].append(piece)
            room -= piece.tasks
        else:
            found.append([piece])
            room = min(EVENTS_PER_TASK_MIN, tasks_per_task) - piece.tasks
    return [tuple(pieces) for pieces in found]


def _cut(whole: TaskRange, tasks_max: int) -> Iterator[TaskRange]:
    ids = whole.last_id - whole.after_id
    pieces = min(-(-whole.tasks // tasks_max), ids) or 1
    edges = [whole.after_id + ids * number // pieces for number in range(pieces + 1)]
    for after_id, last_id in itertools.pairwise(edges):
        yield TaskRange(whole.tube, after_id, last_id, -(-whole.tasks // pieces))


def read_range(
    client: FeedClient, snapshot_id: str, wanted: TaskRange, *, has_payload: bool
) -> Iterator[ReadTaskSnapshotResponse]:
    """Yield the parts of a range; a broken stream continues after the last part.

    Raises:
        SnapshotExpired: the node does not keep the snapshot.
        FeedBroken: the node sent an invalid answer.
        FeedRefused, FeedUnreachable: see `FeedClient.handle_failure`.
    """
    at = wanted.after_id
    while at < wanted.last_id:
        request = ReadTaskSnapshotRequest(
            snapshot_id=snapshot_id,
            tube=wanted.tube,
            after_id=at,
            last_id=wanted.last_id,
            payload_omit=not has_payload,
        )
        try:
            for part in client.stub().ReadTaskSnapshot(request, timeout=client.timeout_seconds):
                _check(part, wanted, at)
                at = part.through_id
                client.reset_failures()
                yield part
        except grpc.RpcError as error:
            if error_info(error)[0] == "SNAPSHOT_NOT_FOUND":
                raise SnapshotExpired(
                    f"SNAPSHOT_NOT_FOUND: {client.endpoint} does not keep the snapshot of this"
                    " query any more; call load() again, or set a longer snapshotTtl"
                ) from error
            client.handle_failure(error)
        else:
            if at != wanted.last_id:
                raise FeedBroken(f"{wanted}: the node ended the range early, at {at}")


def _check(part: ReadTaskSnapshotResponse, wanted: TaskRange, at: int) -> None:
    """Check that a part continues the range: ascending ids above ``at``, within the range."""
    ids = [at, *(task.id for task in part.tasks)]
    is_ascending = all(before < after for before, after in itertools.pairwise(ids))
    is_inside = ids[-1] <= part.through_id <= wanted.last_id
    is_end = part.last == (part.through_id == wanted.last_id)
    if not (is_ascending and is_inside and is_end and part.through_id > at):
        raise FeedBroken(
            f"{wanted}: expected tasks after {at}, got tasks up to {ids[-1]} in a part that ends"
            f" at {part.through_id}"
        )
