"""Measure the cost, per task, of converting bytes into commands and back.

Run: python -m bench.codec. Prints CPU time per task in µs in batches of 100, one line per path:
median and range of several rounds. Rejected alternatives are measured too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import wire
from taskraft_service.api.tasks.answers import encode_tasks
from taskraft_service.command_codecs.put import PUT
from taskraft_service.entries.encoded_command import encode_request
from taskraft_service.entries.log_entry import decode_entry, encode_entry
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import TaskView

BATCH: Final = 100
ROUNDS: Final = 9
REPEATS: Final = 100
PAYLOAD: Final = b"x" * 100
NOW_MS: Final = 1_800_000_000_000


def measure(name: str, work: Callable[[], object]) -> None:
    """Print the cost per task."""
    work()
    costs = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REPEATS):
            work()
        costs.append((time.process_time() - began) / REPEATS / BATCH * 1e6)
    median = statistics.median(costs)
    print(f"{name:46} {median:6.2f} us per task ({min(costs):.2f} to {max(costs):.2f})")


def put_request(*, with_headers: bool) -> bytes:
    """Return an encoded put of 100 tasks."""
    spec = task_pb2.TaskSpec(payload=PAYLOAD)
    if with_headers:
        spec.headers["traceparent"] = b"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
        spec.priority = 7
    return pb.PutTasksRequest(tube="emails", tasks=[spec] * BATCH).SerializeToString()


def views() -> list[TaskView]:
    """Return 100 tasks as one take leases them."""
    body = task_pb2.TaskSpec(payload=PAYLOAD).SerializeToString()
    return [
        TaskView(
            tube="emails",
            id=1_000 + place,
            body=body,
            state=State.TAKEN,
            token=5_000_000 + place,
            lease_until_ms=NOW_MS + 60_000,
            attempt=1,
            created_ms=NOW_MS,
            since_ms=NOW_MS + 5,
            visible_at_ms=0,
            expire_at_ms=0,
            session_id="01234567-0123-4123-8123-012345678901",
            priority=0,
            ttr_ms=60_000,
            ttl_ms=FOREVER_MS,
        )
        for place in range(BATCH)
    ]


def leader_put(raw: bytes) -> bytes:
    """Process a put as the leader does before it proposes the put."""
    request = pb.PutTasksRequest.FromString(raw)
    return encode_entry(NOW_MS, [encode_request(PUT, request, raw)])


def parsed_and_written_again(raw: bytes) -> list[bytes]:
    """Rejected alternative: parse the tasks and serialise them again."""
    request = pb.PutTasksRequest.FromString(raw)
    return [spec.SerializeToString() for spec in request.tasks]


def written_as_messages(tasks: list[TaskView]) -> bytes:
    """Rejected alternative: build the response to a take from protobuf messages."""
    answer = pb.TakeTasksResponse()
    for view in tasks:
        task = answer.tasks.add(
            tube=view.tube,
            id=view.id,
            state=task_pb2.Task.TAKEN,
            token=view.token,
            lease_until_ms=view.lease_until_ms,
            attempt=view.attempt,
            created_ms=view.created_ms,
            since_ms=view.since_ms,
            session_id=view.session_id,
            ttr_ms=view.ttr_ms,
        )
        task.spec.MergeFromString(view.body)
    return answer.SerializeToString()


def main() -> None:
    """Measure all paths."""
    plain, rich = put_request(with_headers=False), put_request(with_headers=True)
    entry = leader_put(plain)
    taken = views()
    measure("put: request to command and entry, payload only", lambda: leader_put(plain))
    measure("put: the same with headers and priority", lambda: leader_put(rich))
    measure("put: entry to command, on a follower", lambda: decode_entry(entry))
    measure("put: bodies by place", lambda: wire.elements(plain, 3))
    measure("  instead of parsed and written again", lambda: parsed_and_written_again(plain))
    measure("take: tasks to answer, around stored specs", lambda: encode_tasks(taken, 1, 0))
    measure("  instead of as messages", lambda: written_as_messages(taken))


if __name__ == "__main__":
    main()
