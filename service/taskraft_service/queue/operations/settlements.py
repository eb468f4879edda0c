"""Define the settlements of leases, and the command that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import Failure, TaskProgress
from taskraft_service.queue.entities.tube_options import TtlPolicy
from taskraft_service.queue.transitions.updating import TaskUpdate
from taskraft_service.queue.values import value


class Keep(IntEnum):
    """Effect of an acknowledgement on its task; values as in the API."""

    AS_TUBE = 0
    REMOVE = 1
    DONE = 2
    ZOMBIE = 3


@value
class Ack:
    """Finish tasks.

    ``keep``, ``retain_ms`` and ``update`` (a new payload) apply to tasks that are kept.
    ``retain_ms`` None: the retention of the tube.
    """

    tokens: Sequence[int]
    result: bytes | None = None
    result_content_type: str = ""
    keep: Keep = Keep.AS_TUBE
    retain_ms: int | None = None
    update: TaskUpdate | None = None


@value
class Release:
    """Return tasks to READY at their old position, to DELAYED, or to another tube.

    ``delay_ms`` None: the retry policy decides. ``ttl_policy`` None: the policy of the tube.
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
    """Bury leased tasks."""

    tokens: Sequence[int]
    failure: Failure | None = None
    update: TaskUpdate | None = None


@value
class Reject:
    """Give up leased tasks: move them to the dead-letter tube, or bury them if there is none."""

    tokens: Sequence[int]
    failure: Failure | None = None


@value
class Touch:
    """Extend leases by an increment, or restart their time to run; store the reported progress."""

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
"""Names of the settlements in the contract."""


@value
class Settle:
    """Settle leases.

    Answer: ``SettleResult``; items are counted over all tokens of the command.
    """

    settlements: Sequence[Settlement]
    atomic: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class TouchedLease:
    """A lease after a touch.

    ``lease_until_ms`` 0: the lease lasts as long as its session. ``cancel_requested``: the holder
    is asked to stop.
    """

    token: int
    lease_until_ms: int
    cancel_requested: bool = False


@value
class GivenUpLease:
    """A lease after a release or a rejection that made its task neither READY nor DELAYED.

    ``outcome``: BURIED_OUT, FAILED (removed, or moved to the dead-letter tube) or DELETED.
    """

    token: int
    outcome: TaskOutcome


@value
class SettleResult:
    """The refused tokens by position, the touched leases, and the leases that were given up."""

    refused: Sequence[ItemRefusal] = ()
    touched: Sequence[TouchedLease] = ()
    given_up: Sequence[GivenUpLease] = ()


def kept_bytes(settlement: Settlement) -> int:
    """Return the upper bound of the content that a settlement adds to each of its tasks."""
    if isinstance(settlement, (Touch, Reject)):
        return 0
    update = settlement.update
    content = len(update.content) if update is not None else 0
    return content + (len(settlement.result or b"") if isinstance(settlement, Ack) else 0)
