"""State of one sub-queue in memory, and the keys of its offered task in the store.

The offered task has one key in the order of its tube and one in the order of its type. With
weights, the value under the task's key in the sub-queue is the turn of the sub-queue.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from taskraft_service.queue.store.keys import ready_key, subqueue_prefix, typed_prefix, waiting_key
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write

_turn: Final = Struct(">Q")


class Subqueue:
    """State of one sub-queue.

    ``order`` holds the entries of its ready tasks. None: they are only in the store, and
    ``offered`` is unknown. ``offered`` is the entry of the offered task, or None. ``written`` is
    the offered entry in the store; it is valid only while ``touched``. Both entries have the type
    of their task.
    """

    __slots__ = (
        "name",
        "offered",
        "offered_type",
        "order",
        "taken",
        "touched",
        "written",
        "written_type",
    )

    def __init__(self, name: str) -> None:
        """Make a sub-queue without taken tasks."""
        self.name = name
        self.taken = 0
        self.order: OrderedIndex | None = None
        self.offered: OrderKey | None = None
        self.offered_type = ""
        self.written: OrderKey | None = None
        self.written_type = ""
        self.touched = False


def stored_turn(store: Store, number: int, name: str, place: OrderKey) -> int:
    """Return the stored turn of the task that a sub-queue offers; only with weights."""
    turn = store.get(waiting_key(subqueue_prefix(number, name), place))
    assert turn, f"sub-queue {name!r} offers a task without a turn"
    return int(_turn.unpack(turn)[0])


def write_offer(number: int, subqueue: Subqueue, writes: list[Write], *, has_turns: bool) -> None:
    """Append the changes of a sub-queue's offered task; its order must be in memory."""
    written, offered = subqueue.written, subqueue.offered
    written_type, offered_type = subqueue.written_type, subqueue.offered_type
    if written != offered or written_type != offered_type:
        if written is not None:
            _write(number, written, written_type, None, writes)
        if offered is not None:
            _write(number, offered, offered_type, b"", writes)
    if offered is not None and has_turns:
        assert subqueue.order is not None
        least = subqueue.order.least()
        assert least is not None
        place = waiting_key(subqueue_prefix(number, subqueue.name), least)
        writes.append((place, _turn.pack(offered[0])))


def _write(
    number: int, offer: OrderKey, task_type: str, content: bytes | None, writes: list[Write]
) -> None:
    """Append an offered entry, also by type, to ``writes``; ``content`` None deletes it."""
    writes.append((ready_key(number, offer), content))
    if task_type:
        writes.append((waiting_key(typed_prefix(number, task_type), offer), content))
