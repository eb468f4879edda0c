"""Add the content of tasks to the events of a chunk, for readers that ask for it.

The feed stores no content. The node reads each task when it sends the event, so the content is that
of the task now, and a task that has left its tube has none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from taskraft.v1 import feed_service_pb2 as pb
from taskraft.v1 import task_pb2
from taskraft_service.queue.entities.instants import in_wall_time
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.queue import Queue

ROWS_MAX: Final = 256
"""Maximum number of events in a chunk with content, which bounds the reads of one step."""
READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum content that the node reads for one chunk."""
_Content: Final = pb.ReadChangesRequest.Content


def add_contents(
    answer: pb.ReadChangesResponse, queue: Queue, parts: Collection[int], bytes_max: int
) -> None:
    """Add content to the events of a chunk; cut the chunk after ``bytes_max`` bytes of content.

    The chunk also ends when the node has read ``READ_BYTES_MAX``, most of which may be left out. A
    chunk keeps at least one event, because the reader could otherwise never pass a large task.
    """
    size = read_bytes = 0
    for place, event in enumerate(answer.events):
        view = _task_of(event, queue)
        if view is not None:
            content = _content_of(view.body, parts)
            size += content.ByteSize()
            read_bytes += len(view.body)
            if place and (size > bytes_max or read_bytes > READ_BYTES_MAX):
                answer.next_seq, answer.rows = event.seq, place
                del answer.events[place:]
                return
            event.content.CopyFrom(content)


def _task_of(event: pb.ChangeEvent, queue: Queue) -> TaskView | None:
    """Return the task of an event; None if it has left the tube, or the tube was created again."""
    tube = queue.tube(event.tube)
    if tube is None or event.at_ms < in_wall_time(tube.created_ms, queue.wall_offset_ms):
        return None
    return queue.get_tasks(event.tube, [event.task_id])[0]


def _content_of(body: bytes, parts: Collection[int]) -> task_pb2.TaskSpec:
    """Return the requested parts of a stored TaskSpec."""
    spec = task_pb2.TaskSpec.FromString(body)
    content = task_pb2.TaskSpec()
    if _Content.KEY in parts:
        content.unique_key.extend(spec.unique_key)
    if _Content.HEADERS in parts:
        for name, text in spec.headers.items():
            content.headers[name] = text
        content.content_type = spec.content_type
    if _Content.PAYLOAD in parts:
        content.payload = spec.payload
        content.content_type = spec.content_type
    return content
