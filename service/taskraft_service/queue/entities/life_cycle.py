"""Define the life cycle of a task as one table: state and operation determine the next state.

An operation that the table does not list for a state is refused. Operations of the clock, such as
the end of a delay, occur only in the states for which the table lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Final

from taskraft_service.queue.entities.task_state import (
    BURIED,
    DELAYED,
    DONE,
    GONE,
    HELD,
    READY,
    TAKEN,
    ZOMBIE,
    State,
)


class EventKind(IntEnum):
    """Kind of an event; numbers are those of taskraft.v1.ChangeEvent.Kind."""

    PUT = 1
    TAKE = 2
    ACK = 3
    RELEASE = 4
    BURY = 5
    KICK = 6
    TOUCH = 7
    DELETE = 8
    DELAY_DUE = 9
    TTR_EXPIRED = 10
    TTL_EXPIRED = 11
    SESSION_RELEASE = 12
    STARTUP_RELEASE = 13
    TRUNCATE = 14
    UPDATE = 15
    RETENTION_EXPIRED = 16
    SNATCH = 17
    RESTART = 18
    SWITCH = 19
    MOVE = 20
    RELEASE_ALL = 21
    GROUP_START = 22
    CANCEL = 23
    DEPENDENCIES_DONE = 24
    DEPENDENCY_FAILED = 25


@unique
class Operation(IntEnum):
    """Operation on a task; DELAYED in a name means that the operation has a delay above 0 ms.

    EXHAUST: a return that uses up the attempts, so that the task is buried; EXHAUST_REMOVE removes
    the task. MOVE: a release of a taken task to another tube, or its move to the dead-letter tube.
    MOVE_CHOSEN: a move of a task without a lease. TTL_END applies only in the states of the tube's
    ``ttl_scope``. REPLACE: a put with the unique key of the task.
    """

    PUT = 0
    PUT_DELAYED = 1
    TAKE = 2
    TAKE_CHOSEN = 3
    ACK = 4
    RELEASE = 5
    RELEASE_DELAYED = 6
    BURY_TAKEN = 7
    TOUCH = 8
    BURY = 9
    KICK = 10
    KICK_DELAYED = 11
    DELETE = 12
    DELAY_END = 13
    LEASE_END = 14
    TTL_END = 15
    SESSION_END = 16
    RELEASE_ALL = 17
    TRUNCATE = 18
    ACK_KEEP = 19
    ACK_RETAIN = 20
    RETENTION_END = 21
    REJECT = 22
    EXHAUST = 23
    EXHAUST_REMOVE = 24
    MOVE = 25
    MOVE_CHOSEN = 26
    PUT_HELD = 40
    GROUP_START = 41
    GROUP_START_DELAYED = 42
    DEPENDENCIES_DONE = 43
    DEPENDENCIES_DONE_DELAYED = 44
    DEPENDENCY_FAILED = 45
    SNATCH = 50
    SNATCH_DELAYED = 51
    RESTART = 52
    RESTART_DELAYED = 53
    SWITCH_READY = 54
    SWITCH_DELAYED = 55
    SWITCH_BURIED = 56
    SWITCH_DONE = 57
    SWITCH_ZOMBIE = 58
    CANCEL = 59
    UPDATE = 60
    UPDATE_DELAYED = 61
    UPDATE_UNDELAYED = 62
    REPLACE = 63
    REPLACE_DELAYED = 64
    LEASE_END_DELAYED = 70
    SESSION_END_DELAYED = 71
    CANCEL_RETURNED = 72


LIFE_CYCLE: Final[Mapping[tuple[State, Operation], State]] = {
    (GONE, Operation.PUT): READY,
    (GONE, Operation.PUT_DELAYED): DELAYED,
    (READY, Operation.TAKE): TAKEN,
    (READY, Operation.TAKE_CHOSEN): TAKEN,
    (READY, Operation.BURY): BURIED,
    (READY, Operation.DELETE): GONE,
    (READY, Operation.TTL_END): GONE,
    (DELAYED, Operation.TTL_END): GONE,
    (TAKEN, Operation.TTL_END): GONE,
    (READY, Operation.TRUNCATE): GONE,
    (DELAYED, Operation.TAKE_CHOSEN): TAKEN,
    (DELAYED, Operation.BURY): BURIED,
    (DELAYED, Operation.DELETE): GONE,
    (DELAYED, Operation.DELAY_END): READY,
    (DELAYED, Operation.TRUNCATE): GONE,
    (TAKEN, Operation.ACK): GONE,
    (TAKEN, Operation.ACK_KEEP): DONE,
    (TAKEN, Operation.ACK_RETAIN): ZOMBIE,
    (TAKEN, Operation.RELEASE): READY,
    (TAKEN, Operation.RELEASE_DELAYED): DELAYED,
    (TAKEN, Operation.BURY_TAKEN): BURIED,
    (TAKEN, Operation.REJECT): BURIED,
    (TAKEN, Operation.EXHAUST): BURIED,
    (TAKEN, Operation.EXHAUST_REMOVE): GONE,
    (TAKEN, Operation.MOVE): GONE,
    (READY, Operation.MOVE_CHOSEN): GONE,
    (DELAYED, Operation.MOVE_CHOSEN): GONE,
    (BURIED, Operation.MOVE_CHOSEN): GONE,
    (TAKEN, Operation.TOUCH): TAKEN,
    (TAKEN, Operation.DELETE): GONE,
    (TAKEN, Operation.LEASE_END): READY,
    (TAKEN, Operation.LEASE_END_DELAYED): DELAYED,
    (TAKEN, Operation.SESSION_END): READY,
    (TAKEN, Operation.SESSION_END_DELAYED): DELAYED,
    (TAKEN, Operation.CANCEL_RETURNED): GONE,
    (TAKEN, Operation.RELEASE_ALL): READY,
    (TAKEN, Operation.TRUNCATE): GONE,
    (BURIED, Operation.TAKE_CHOSEN): TAKEN,
    (BURIED, Operation.BURY): BURIED,
    (BURIED, Operation.KICK): READY,
    (BURIED, Operation.KICK_DELAYED): DELAYED,
    (BURIED, Operation.DELETE): GONE,
    (BURIED, Operation.TTL_END): GONE,
    (BURIED, Operation.TRUNCATE): GONE,
    (DONE, Operation.DELETE): GONE,
    (DONE, Operation.RETENTION_END): GONE,
    (DONE, Operation.TRUNCATE): GONE,
    (GONE, Operation.PUT_HELD): HELD,
    (HELD, Operation.GROUP_START): READY,
    (HELD, Operation.GROUP_START_DELAYED): DELAYED,
    (HELD, Operation.DEPENDENCIES_DONE): READY,
    (HELD, Operation.DEPENDENCIES_DONE_DELAYED): DELAYED,
    (HELD, Operation.DEPENDENCY_FAILED): GONE,
    (HELD, Operation.DELETE): GONE,
    (HELD, Operation.TTL_END): GONE,
    (HELD, Operation.TRUNCATE): GONE,
    (ZOMBIE, Operation.DELETE): GONE,
    (ZOMBIE, Operation.RETENTION_END): GONE,
    (ZOMBIE, Operation.TRUNCATE): GONE,
    (TAKEN, Operation.SNATCH): READY,
    (TAKEN, Operation.SNATCH_DELAYED): DELAYED,
    (DELAYED, Operation.RESTART): READY,
    (DELAYED, Operation.RESTART_DELAYED): DELAYED,
    (BURIED, Operation.RESTART): READY,
    (BURIED, Operation.RESTART_DELAYED): DELAYED,
    (DONE, Operation.RESTART): READY,
    (DONE, Operation.RESTART_DELAYED): DELAYED,
    (ZOMBIE, Operation.RESTART): READY,
    (ZOMBIE, Operation.RESTART_DELAYED): DELAYED,
    (READY, Operation.SWITCH_DELAYED): DELAYED,
    (READY, Operation.SWITCH_BURIED): BURIED,
    (READY, Operation.SWITCH_DONE): DONE,
    (READY, Operation.SWITCH_ZOMBIE): ZOMBIE,
    (DELAYED, Operation.SWITCH_READY): READY,
    (DELAYED, Operation.SWITCH_DELAYED): DELAYED,
    (DELAYED, Operation.SWITCH_BURIED): BURIED,
    (DELAYED, Operation.SWITCH_DONE): DONE,
    (DELAYED, Operation.SWITCH_ZOMBIE): ZOMBIE,
    (BURIED, Operation.SWITCH_READY): READY,
    (BURIED, Operation.SWITCH_DELAYED): DELAYED,
    (BURIED, Operation.SWITCH_DONE): DONE,
    (BURIED, Operation.SWITCH_ZOMBIE): ZOMBIE,
    (DONE, Operation.SWITCH_READY): READY,
    (DONE, Operation.SWITCH_DELAYED): DELAYED,
    (DONE, Operation.SWITCH_BURIED): BURIED,
    (DONE, Operation.SWITCH_ZOMBIE): ZOMBIE,
    (ZOMBIE, Operation.SWITCH_READY): READY,
    (ZOMBIE, Operation.SWITCH_DELAYED): DELAYED,
    (ZOMBIE, Operation.SWITCH_BURIED): BURIED,
    (ZOMBIE, Operation.SWITCH_DONE): DONE,
    (ZOMBIE, Operation.SWITCH_ZOMBIE): ZOMBIE,
    (HELD, Operation.CANCEL): GONE,
    (READY, Operation.CANCEL): GONE,
    (DELAYED, Operation.CANCEL): GONE,
    (BURIED, Operation.CANCEL): GONE,
    (TAKEN, Operation.CANCEL): TAKEN,
    (HELD, Operation.UPDATE): HELD,
    (READY, Operation.UPDATE): READY,
    (DELAYED, Operation.UPDATE): DELAYED,
    (BURIED, Operation.UPDATE): BURIED,
    (READY, Operation.UPDATE_DELAYED): DELAYED,
    (READY, Operation.UPDATE_UNDELAYED): READY,
    (DELAYED, Operation.UPDATE_DELAYED): DELAYED,
    (DELAYED, Operation.UPDATE_UNDELAYED): READY,
    (READY, Operation.REPLACE): READY,
    (READY, Operation.REPLACE_DELAYED): DELAYED,
    (DELAYED, Operation.REPLACE): READY,
    (DELAYED, Operation.REPLACE_DELAYED): DELAYED,
    (BURIED, Operation.REPLACE): READY,
    (BURIED, Operation.REPLACE_DELAYED): DELAYED,
    (HELD, Operation.REPLACE): HELD,
    (HELD, Operation.REPLACE_DELAYED): HELD,
}
"""State after an operation, by the state before; used by ``transitions.transition``."""


EVENT_KINDS: Final[Mapping[Operation, EventKind]] = {
    Operation.PUT: EventKind.PUT,
    Operation.PUT_DELAYED: EventKind.PUT,
    Operation.PUT_HELD: EventKind.PUT,
    Operation.TAKE: EventKind.TAKE,
    Operation.TAKE_CHOSEN: EventKind.TAKE,
    Operation.ACK: EventKind.ACK,
    Operation.ACK_KEEP: EventKind.ACK,
    Operation.ACK_RETAIN: EventKind.ACK,
    Operation.RELEASE: EventKind.RELEASE,
    Operation.RELEASE_DELAYED: EventKind.RELEASE,
    Operation.BURY: EventKind.BURY,
    Operation.BURY_TAKEN: EventKind.BURY,
    Operation.REJECT: EventKind.BURY,
    Operation.EXHAUST: EventKind.RELEASE,
    Operation.EXHAUST_REMOVE: EventKind.RELEASE,
    Operation.TOUCH: EventKind.TOUCH,
    Operation.KICK: EventKind.KICK,
    Operation.KICK_DELAYED: EventKind.KICK,
    Operation.DELETE: EventKind.DELETE,
    Operation.DELAY_END: EventKind.DELAY_DUE,
    Operation.LEASE_END: EventKind.TTR_EXPIRED,
    Operation.LEASE_END_DELAYED: EventKind.TTR_EXPIRED,
    Operation.TTL_END: EventKind.TTL_EXPIRED,
    Operation.SESSION_END: EventKind.SESSION_RELEASE,
    Operation.SESSION_END_DELAYED: EventKind.SESSION_RELEASE,
    Operation.RELEASE_ALL: EventKind.RELEASE_ALL,
    Operation.TRUNCATE: EventKind.TRUNCATE,
    Operation.RETENTION_END: EventKind.RETENTION_EXPIRED,
    Operation.MOVE: EventKind.MOVE,
    Operation.MOVE_CHOSEN: EventKind.MOVE,
    Operation.GROUP_START: EventKind.GROUP_START,
    Operation.GROUP_START_DELAYED: EventKind.GROUP_START,
    Operation.DEPENDENCIES_DONE: EventKind.DEPENDENCIES_DONE,
    Operation.DEPENDENCIES_DONE_DELAYED: EventKind.DEPENDENCIES_DONE,
    Operation.DEPENDENCY_FAILED: EventKind.DEPENDENCY_FAILED,
    Operation.SNATCH: EventKind.SNATCH,
    Operation.SNATCH_DELAYED: EventKind.SNATCH,
    Operation.RESTART: EventKind.RESTART,
    Operation.RESTART_DELAYED: EventKind.RESTART,
    Operation.SWITCH_READY: EventKind.SWITCH,
    Operation.SWITCH_DELAYED: EventKind.SWITCH,
    Operation.SWITCH_BURIED: EventKind.SWITCH,
    Operation.SWITCH_DONE: EventKind.SWITCH,
    Operation.SWITCH_ZOMBIE: EventKind.SWITCH,
    Operation.CANCEL: EventKind.DELETE,
    Operation.CANCEL_RETURNED: EventKind.RELEASE,
    Operation.UPDATE: EventKind.UPDATE,
    Operation.UPDATE_DELAYED: EventKind.UPDATE,
    Operation.UPDATE_UNDELAYED: EventKind.UPDATE,
    Operation.REPLACE: EventKind.UPDATE,
    Operation.REPLACE_DELAYED: EventKind.UPDATE,
}
"""Kind of the event of an operation in the change feed, unless the caller names another kind.

A retry, a burial or a move after a lost lease has the kind of the operation that ended the lease.
"""
