"""Rules across tasks: one effect per request id, and log positions in the order of real time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.drill.task_history import TaskHistories, Violation


def repeated_requests(histories: TaskHistories) -> Iterator[Violation]:
    """G6: all attempts with one request id have one effect and get the same answer."""
    for put in histories.puts:
        ids = {one.answer["id"] for one in put.oks}
        uids = {one.value["uid"] for one in put.oks}
        if len(uids) > 1:
            text = f"request id {put.attempts[0].request_id} was accepted with contents {uids}"
            yield Violation("G6", "rid-reuse-accepted", text)
        elif len(ids) > 1:
            text = f"retries of the put of {put.value['uid']} made the tasks {sorted(ids)}"
            yield Violation("G6", "retry-different-id", text)
    tasks: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for key, task in histories.tasks.items():
        for uid in task.uids():
            tasks[uid].add(key)
        accepted = {put.value["uid"] for put in task.puts if put.is_ok}
        if len(accepted) > 1:
            yield Violation("G6", "id-collision", f"{task.name} was given to {sorted(accepted)}")
    for uid, found in tasks.items():
        puts = histories.puts_of_uid.get(uid, [])
        if puts and len(found) > len(puts):
            text = f"{len(puts)} puts of {uid} made the tasks {sorted(found)}"
            yield Violation("G6", "duplicate-enqueue", text)


def disordered_positions(histories: TaskHistories) -> Iterator[Violation]:
    """G8: an operation that began after the end of another one has no lower log position."""
    answered = [
        (one, _position(one.answer["rev"]))
        for one in histories.history.operations
        if one.is_ok and one.answer.get("rev") is not None
    ]
    ended = sorted(answered, key=lambda one: one[0].ended_ns)
    done, highest, at = 0, (0, 0), ""
    for one, position in sorted(answered, key=lambda one: one[0].invoked_ns):
        while done < len(ended) and ended[done][0].ended_ns < one.invoked_ns:
            if ended[done][1] > highest:
                highest, at = ended[done][1], ended[done][0].f
            done += 1
        # A log position without a place in the entry is compared by its entry alone.
        if position[0] < highest[0] or (position[1] >= 0 and position < highest):
            text = f"{one.f} of {one.process} at {position[0]}, after a {at} at {highest[0]}"
            yield Violation("G8", "rev-order", text)
    if histories.config.get("rev_unique"):
        seen: dict[tuple[int, int], str] = {}
        for one, position in answered:
            if position in seen and one.f not in ("peek", "snapshot"):
                text = f"{one.f} and {seen[position]} are both at {position}"
                yield Violation("G8", "rev-duplicate", text)
            seen[position] = one.f


def _position(rev: Any) -> tuple[int, int]:
    return (rev, -1) if isinstance(rev, int) else (rev[0], rev[1])


def diverged_replicas(histories: TaskHistories) -> Iterator[Violation]:
    """G10: replicas at the same log position have the same state, and all are equal at the end."""
    digests: dict[Any, set[str]] = defaultdict(set)
    final: dict[str, str] = {}
    for one in histories.history.of("digest"):
        if one.is_ok:
            digests[one.answer["applied"]].add(one.answer["digest"])
            if one.value.get("final"):
                final[one.node] = one.answer["digest"]
    for applied, found in digests.items():
        if len(found) > 1:
            yield Violation("G10", "replica-divergence", f"states differ at log position {applied}")
            return
    if len(set(final.values())) > 1:
        yield Violation("G10", "replica-divergence", f"states differ at the end: {final}")
