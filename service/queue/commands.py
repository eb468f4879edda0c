"""Define the commands that change the queue, and what each of them answers.

A command has been checked for form by the caller (limits, ranges, names); what depends on the state
is checked here and answered as a ``Refusal``, never raised. Times are milliseconds; ``None`` means
"as the tube says"; ``FOREVER_MS`` and more mean without limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from service.queue.values import value

FOREVER_MS: Final = 100 * 365 * 86_400_000
"""Durations from here on are without limit (tarantool/queue's 100 years)."""


class Reason(IntEnum):
    """Why something was refused; numbers and names are those of taskraft.v1.Error.Reason."""

    TUBE_NOT_FOUND = 1
    TASK_NOT_FOUND = 2
    SESSION_NOT_FOUND = 3
    TUBE_EXISTS = 10
    KEY_TAKEN = 11
    REQUEST_ID_REUSED = 12
    LEASE_STALE = 20
    WRONG_STATE = 21
    TUBE_BUSY = 22
    KIND_UNSUITABLE = 23
    DRIVER_MISSING = 24
    TUBE_FULL = 30
    RATE_LIMITED = 31
    LIMIT_REACHED = 32
    INVALID_FIELD = 41
    TUBE_PAUSED = 50
    CURSOR_TRIMMED = 60
    NOT_IMPLEMENTED = 70


@value
class Refusal:
    """Says that a command, or one item of it, had no effect."""

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@value
class ItemRefusal:
    """Says which item of a list was refused; items count from 0."""

    item: int
    refusal: Refusal


class TubeKind(IntEnum):
    """Kinds of tubes; numbers are those of taskraft.v1.Tube.Kind."""

    FIFO = 1
    FIFOTTL = 2
    LIMFIFOTTL = 3
    UTUBE = 4
    UTUBETTL = 5
    CUSTOM = 6


@value
class TubeOptions:
    """Options of a tube, defaults applied: what taskraft.v1.TubeOptions says and this core does."""

    higher_first: bool = False
    priority: int = 0
    delay_ms: int = 0
    ttl_ms: int = FOREVER_MS
    ttr_ms: int = FOREVER_MS
    put_paused: bool = False
    take_paused: bool = False


class Position(Enum):
    """Where a task goes in the order of ready tasks."""

    IN_ORDER = 0
    FRONT = 1
    BACK = 2


@value
class NewTask:
    """One task of a put. ``body`` is the producer's TaskSpec as it came: opaque to the queue."""

    body: bytes
    payload_bytes: int
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    ttr_ms: int | None = None
    visible_at_ms: int | None = None
    type: str = ""
    subqueue: str = ""
    position: Position = Position.IN_ORDER


@value
class Put:
    """Put tasks, all or each for itself. Answer: ``PutResult``."""

    tube: str
    tasks: Sequence[NewTask]
    atomic: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class Take:
    """Lease ready tasks of some tubes to a session, or for a time. Answer: ``TakeResult``."""

    tubes: Sequence[str]
    session_id: str = ""
    tasks_max: int = 1
    bytes_max: int = 4 * 1024 * 1024
    ttr_ms: int | None = None
    types: Sequence[str] = ()
    priority_bound: int | None = None
    task_id: int | None = None
    request_id: str = ""
    request_hash: int = 0


@value
class Ack:
    """Finish tasks."""

    tokens: Sequence[int]
    result: bytes | None = None
    result_content_type: str = ""


@value
class Failure:
    """Why an attempt failed."""

    type: str = ""
    message: str = ""
    fatal: bool = False


class TtlPolicy(Enum):
    """What a release with delay does to the time to live."""

    ADD_DELAY = 1
    KEEP_DEADLINE = 2
    RESET = 3


@value
class Release:
    """Give tasks back, ready at their old place or delayed."""

    tokens: Sequence[int]
    delay_ms: int = 0
    ttl_policy: TtlPolicy = TtlPolicy.ADD_DELAY
    ttl_ms: int | None = None
    position: Position = Position.IN_ORDER
    uncounted: bool = False
    failure: Failure | None = None


@value
class BuryTaken:
    """Take leased tasks out of circulation."""

    tokens: Sequence[int]
    failure: Failure | None = None


@value
class Touch:
    """Prolong leases: add to them, or start their time to run anew."""

    tokens: Sequence[int]
    increment_ms: int = 0
    restart: bool = False


Settlement: TypeAlias = Ack | Release | BuryTaken | Touch


@value
class Settle:
    """Settle leases. Answer: ``SettleResult``; items count over all tokens."""

    settlements: Sequence[Settlement]
    atomic: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class Kick:
    """Make buried tasks ready: the first ``count``, or chosen ones. Answer: ``CountResult``."""

    tube: str
    count: int = 1
    ids: Sequence[int] = ()
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


@value
class Bury:
    """Bury ready or delayed tasks by id. Answer: ``CountResult``."""

    tube: str
    ids: Sequence[int]
    failure: Failure | None = None
    request_id: str = ""
    request_hash: int = 0


@value
class Delete:
    """Remove tasks in any state by id. Answer: ``CountResult``."""

    tube: str
    ids: Sequence[int]
    request_id: str = ""
    request_hash: int = 0


@value
class CreateTube:
    """Create a tube. Answer: ``TubeResult``.

    ``body`` is the client's message as it came, kept to be shown.
    """

    name: str
    kind: TubeKind
    options: TubeOptions
    body: bytes = b""
    if_not_exists: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class DropTube:
    """Remove a tube and its tasks. Answer: ``CountResult``."""

    name: str
    force: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class TruncateTube:
    """Remove all tasks of a tube. Answer: ``CountResult``."""

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class ReleaseAll:
    """Release all taken tasks of a tube. Answer: ``CountResult``."""

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class OpenSession:
    """Open a session under an id that the leader drew. Answer: ``SessionResult``."""

    session_id: str
    name: str = ""
    ttr_ms: int = 15_000
    request_id: str = ""
    request_hash: int = 0


@value
class KeepSessions:
    """Prolong sessions by their ttr from now. Answer: ``KeepResult``."""

    session_ids: Sequence[str]


@value
class AttachSession:
    """Say whether a session has streams; its ttr starts when it has none any more.

    Answer: ``KeepResult``, without the session where that ended it at once (no ttr).
    """

    session_id: str
    attached: bool


@value
class CloseSession:
    """Close a session and release what it holds. Answer: ``CountResult``."""

    session_id: str
    uncounted: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class Startup:
    """Begin a leadership: detach all sessions and give each a full grace.

    Sessionless leases live on. ``feed_id`` and ``feed_partitions`` are used by the first one of a
    cluster only. Answer: ``StartupResult``.
    """

    member_id: int
    failover_grace_ms: int
    feed_id: str = ""
    feed_partitions: int = 0


@value
class TrimFeed:
    """Remove the events below the given sequence numbers, by partition. Answer: ``CountResult``."""

    low_seq: Mapping[int, int]


Command: TypeAlias = (
    Put
    | Take
    | Settle
    | Kick
    | Bury
    | Delete
    | CreateTube
    | DropTube
    | TruncateTube
    | ReleaseAll
    | OpenSession
    | KeepSessions
    | AttachSession
    | CloseSession
    | Startup
    | TrimFeed
)


class State(IntEnum):
    """States of a task; numbers are those of taskraft.v1.Task.State. GONE: it does not exist."""

    GONE = 0
    READY = 1
    DELAYED = 2
    TAKEN = 3
    BURIED = 4
    DONE = 5
    ZOMBIE = 6
    HELD = 7


@value
class TaskView:
    """A task as it is shown; times are instants of the cluster's clock, 0 where there is none."""

    tube: str
    id: int
    body: bytes
    state: State
    token: int
    lease_until_ms: int
    attempt: int
    created_ms: int
    since_ms: int
    visible_at_ms: int
    expire_at_ms: int
    session_id: str
    priority: int
    ttr_ms: int
    ttl_ms: int
    failure: Failure | None = None
    times_buried: int = 0


@value
class PutResult:
    """One id per task, 0 where it was refused."""

    ids: Sequence[int]
    refused: Sequence[ItemRefusal] = ()


@value
class TakeResult:
    """The leased tasks in order."""

    tasks: Sequence[TaskView]


@value
class TouchedLease:
    """A lease after a touch; ``lease_until_ms`` 0: it lives as long as its session."""

    token: int
    lease_until_ms: int


@value
class SettleResult:
    """The refused tokens by position, and the touched leases."""

    refused: Sequence[ItemRefusal] = ()
    touched: Sequence[TouchedLease] = ()


@value
class CountResult:
    """How many tasks were affected, and the refused items."""

    count: int
    refused: Sequence[ItemRefusal] = ()


@value
class TubeView:
    """A tube as it is shown."""

    name: str
    kind: TubeKind
    options: TubeOptions
    body: bytes
    created_ms: int


@value
class TubeResult:
    """The tube that exists now."""

    tube: TubeView
    existed: bool = False


@value
class SessionView:
    """A session as it is shown; ``expires_ms`` 0: a stream of it is open."""

    session_id: str
    name: str
    ttr_ms: int
    expires_ms: int
    taken: int
    created_ms: int


@value
class SessionResult:
    """The session."""

    session: SessionView


@value
class KeepResult:
    """The sessions that live on, and the others by position."""

    sessions: Sequence[SessionView]
    refused: Sequence[ItemRefusal] = ()


@value
class StartupResult:
    """How many leases the new leader released."""

    released: int


Result: TypeAlias = (
    PutResult
    | TakeResult
    | SettleResult
    | CountResult
    | TubeResult
    | SessionResult
    | KeepResult
    | StartupResult
    | Refusal
)
