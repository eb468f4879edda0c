"""Settle leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.entities.task_update import TaskUpdate
from taskraft_service.queue.entities.task_view import Failure, TaskProgress
from taskraft_service.queue.entities.tube_options import TtlPolicy
from taskraft_service.queue.values import value


class Keep(IntEnum):
    """What becomes of one acknowledged task; numbers are those of the contract."""

    AS_TUBE = 0
    REMOVE = 1
    DONE = 2
    ZOMBIE = 3


@value
class Ack:
    """Finish tasks.

    ``keep``, ``retain_ms`` and ``update`` (a new content) are about tasks that are kept;
    ``retain_ms`` None: as long as the tube says.
    """

    tokens: Sequence[int]
    result: bytes | None = None
    result_content_type: str = ""
    keep: Keep = Keep.AS_TUBE
    retain_ms: int | None = None
    update: TaskUpdate | None = None


@value
class Release:
    """Give tasks back, ready at their old place or delayed, or to another tube.

    ``delay_ms`` None: as the retry policy says. ``ttl_policy`` None: as the tube says.
    """

    tokens: Sequence[int]
    delay_ms: int | None = None
    ttl_policy: TtlPolicy | None = None
    ttl_ms: int | None = None
    position: Position = Position.IN_ORDER
    uncounted: bool = False
    failure: Failure | None = None
    move_to: str = ""
    update: TaskUpdate | None = None


@value
class BuryTaken:
    """Take leased tasks out of circulation."""

    tokens: Sequence[int]
    failure: Failure | None = None
    update: TaskUpdate | None = None


@value
class Reject:
    """Give leased tasks up: to the dead-letter tube where there is one, else bury them."""

    tokens: Sequence[int]
    failure: Failure | None = None


@value
class Touch:
    """Prolong leases: add to them, or start their time to run anew; tell of progress."""

    tokens: Sequence[int]
    increment_ms: int = 0
    restart: bool = False
    progress: TaskProgress | None = None


Settlement: TypeAlias = Ack | Release | BuryTaken | Reject | Touch
SETTLEMENT_BRANCHES: Final[Mapping[type[Settlement], str]] = {
    Ack: "ack",
    Release: "release",
    BuryTaken: "bury",
    Reject: "reject",
    Touch: "touch",
}
"""What the settlements are called in the contract."""


@value
class Settle:
    """Settle leases. Answer: ``SettleResult``; items count over all tokens."""

    settlements: Sequence[Settlement]
    atomic: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class TouchedLease:
    """A lease after a touch.

    ``lease_until_ms`` 0: it lives as long as its session. ``cancel_requested``: its holder is asked
    to stop.
    """

    token: int
    lease_until_ms: int
    cancel_requested: bool = False


@value
class SettleResult:
    """The refused tokens by position, and the touched leases."""

    refused: Sequence[ItemRefusal] = ()
    touched: Sequence[TouchedLease] = ()
