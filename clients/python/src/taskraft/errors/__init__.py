"""The exceptions of this package, as one tree.

::

    TaskraftError
    ├── RetryableError       a later retry can succeed; the client has already retried or waited
    │   ├── NoLeader, NotLeader, Draining, NodeBehind, MembersChanging, Unavailable,
    │   │   ClientSilent, StateDamaged
    │   ├── CommitUnknown    the outcome is unknown
    │   └── Overloaded, RateLimited, TubeFull, TubePaused
    ├── NotFoundError        TubeNotFound, TaskNotFound, SessionNotFound, ...
    ├── ConflictError        TubeExists, KeyTaken, LeaseStale, WrongState, ...
    ├── InvalidError         InvalidField, PayloadTooLarge, TooManySteps
    ├── LimitError           LimitReached, DiskLow
    ├── AccessError          NoCredentials, NotAllowed
    ├── CursorTrimmed, NotSupported, InternalError
    └── of the client        DeadlinePassed, ItemsRefused, ClientClosed, ClientForked,
                             PayloadNotJson

`taskraft.catalogue` has the meaning of each error, and advice. Neither module imports gRPC.
"""

from __future__ import annotations

from taskraft.errors._client import (
    ClientClosed,
    ClientForked,
    DeadlinePassed,
    ItemsRefused,
    PayloadNotJson,
)
from taskraft.errors._conflicts import (
    ConflictError,
    DriverFailed,
    DriverMissing,
    FeedMismatch,
    GroupExists,
    KeyTaken,
    KindUnsuitable,
    LeaseStale,
    MemberExists,
    MemberNeeded,
    RequestIdReused,
    ScheduleChanged,
    ScheduleExists,
    TubeBusy,
    TubeExists,
    TubeQuarantined,
    VersionTooLow,
    WrongState,
)
from taskraft.errors._not_found import (
    BulkSweepNotFound,
    DependencyNotFound,
    GroupNotFound,
    MemberNotFound,
    NotFoundError,
    ScheduleNotFound,
    SessionNotFound,
    SnapshotNotFound,
    TaskNotFound,
    TubeNotFound,
)
from taskraft.errors._permanent import (
    AccessError,
    CursorTrimmed,
    DiskLow,
    InternalError,
    InvalidError,
    InvalidField,
    LimitError,
    LimitReached,
    NoCredentials,
    NotAllowed,
    NotSupported,
    PayloadTooLarge,
    TooManySteps,
    Violation,
)
from taskraft.errors._retryable import (
    ClientSilent,
    CommitUnknown,
    Draining,
    MembersChanging,
    NodeBehind,
    NoLeader,
    NotLeader,
    Overloaded,
    RateLimited,
    RetryableError,
    StateDamaged,
    TubeFull,
    TubePaused,
    Unavailable,
)
from taskraft.errors._taskraft_error import (
    TaskraftError,
)

__all__ = [
    "AccessError",
    "BulkSweepNotFound",
    "ClientClosed",
    "ClientForked",
    "ClientSilent",
    "CommitUnknown",
    "ConflictError",
    "CursorTrimmed",
    "DeadlinePassed",
    "DependencyNotFound",
    "DiskLow",
    "Draining",
    "DriverFailed",
    "DriverMissing",
    "FeedMismatch",
    "GroupExists",
    "GroupNotFound",
    "InternalError",
    "InvalidError",
    "InvalidField",
    "ItemsRefused",
    "KeyTaken",
    "KindUnsuitable",
    "LeaseStale",
    "LimitError",
    "LimitReached",
    "MemberExists",
    "MemberNeeded",
    "MemberNotFound",
    "MembersChanging",
    "NoCredentials",
    "NoLeader",
    "NodeBehind",
    "NotAllowed",
    "NotFoundError",
    "NotLeader",
    "NotSupported",
    "Overloaded",
    "PayloadNotJson",
    "PayloadTooLarge",
    "RateLimited",
    "RequestIdReused",
    "RetryableError",
    "ScheduleChanged",
    "ScheduleExists",
    "ScheduleNotFound",
    "SessionNotFound",
    "SnapshotNotFound",
    "StateDamaged",
    "TaskNotFound",
    "TaskraftError",
    "TooManySteps",
    "TubeBusy",
    "TubeExists",
    "TubeFull",
    "TubeNotFound",
    "TubePaused",
    "TubeQuarantined",
    "Unavailable",
    "VersionTooLow",
    "Violation",
    "WrongState",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # tracebacks and logs show the public module
