"""List the kinds of commands in the log, and make each from the client's request.

The same function makes a command on the leader, before it is proposed, and on the followers, from
the log; so all replicas see equal commands. Requests have been checked by the API before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from taskraft_service.forms.batch import BATCH
from taskraft_service.forms.circulation import BURY, DELETE, KICK, MOVE
from taskraft_service.forms.consumers import COMMIT_CURSOR
from taskraft_service.forms.form import Form
from taskraft_service.forms.groups import CANCEL_GROUP, CREATE_GROUP, START_GROUP
from taskraft_service.forms.intervention import CANCEL, RESTART, SNATCH, SWITCH, UPDATE
from taskraft_service.forms.put import PUT, new_task, payload_bytes, specs_of
from taskraft_service.forms.schedules import (
    CREATE_SCHEDULE,
    DELETE_SCHEDULE,
    RUN_SCHEDULE,
    UPDATE_SCHEDULE,
)
from taskraft_service.forms.sessions import (
    ATTACH_SESSION,
    CLOSE_SESSION,
    KEEP_SESSIONS,
    NOTE_CALLS,
    OPEN_SESSION,
    STARTUP,
    TRIM_FEED,
)
from taskraft_service.forms.settle import SETTLE
from taskraft_service.forms.take import TAKE
from taskraft_service.forms.tubes import (
    CONFIGURE,
    CREATE_TUBE,
    DROP_TUBE,
    OPTION_NAMES,
    RELEASE_ALL,
    TRUNCATE_TUBE,
    UPDATE_TUBE,
    tube_options,
    update_tube,
)
from taskraft_service.queue.commands.command import Command

COMMANDS: Final[Mapping[int, Callable[[bytes, int], Command]]] = {
    PUT.number: PUT.decode,
    TAKE.number: TAKE.decode,
    SETTLE.number: SETTLE.decode,
    KICK.number: KICK.decode,
    BURY.number: BURY.decode,
    DELETE.number: DELETE.decode,
    UPDATE.number: UPDATE.decode,
    SNATCH.number: SNATCH.decode,
    RESTART.number: RESTART.decode,
    SWITCH.number: SWITCH.decode,
    MOVE.number: MOVE.decode,
    CANCEL.number: CANCEL.decode,
    CREATE_TUBE.number: CREATE_TUBE.decode,
    DROP_TUBE.number: DROP_TUBE.decode,
    TRUNCATE_TUBE.number: TRUNCATE_TUBE.decode,
    RELEASE_ALL.number: RELEASE_ALL.decode,
    UPDATE_TUBE.number: UPDATE_TUBE.decode,
    CONFIGURE.number: CONFIGURE.decode,
    OPEN_SESSION.number: OPEN_SESSION.decode,
    KEEP_SESSIONS.number: KEEP_SESSIONS.decode,
    CLOSE_SESSION.number: CLOSE_SESSION.decode,
    ATTACH_SESSION.number: ATTACH_SESSION.decode,
    BATCH.number: BATCH.decode,
    CREATE_GROUP.number: CREATE_GROUP.decode,
    START_GROUP.number: START_GROUP.decode,
    CANCEL_GROUP.number: CANCEL_GROUP.decode,
    CREATE_SCHEDULE.number: CREATE_SCHEDULE.decode,
    UPDATE_SCHEDULE.number: UPDATE_SCHEDULE.decode,
    DELETE_SCHEDULE.number: DELETE_SCHEDULE.decode,
    RUN_SCHEDULE.number: RUN_SCHEDULE.decode,
    STARTUP.number: STARTUP.decode,
    TRIM_FEED.number: TRIM_FEED.decode,
    NOTE_CALLS.number: NOTE_CALLS.decode,
    COMMIT_CURSOR.number: COMMIT_CURSOR.decode,
}
"""How to make a command from its bytes and its hash, by number."""

__all__ = [
    "ATTACH_SESSION",
    "BATCH",
    "BURY",
    "CANCEL",
    "CANCEL_GROUP",
    "CLOSE_SESSION",
    "COMMANDS",
    "COMMIT_CURSOR",
    "CONFIGURE",
    "CREATE_GROUP",
    "CREATE_SCHEDULE",
    "CREATE_TUBE",
    "DELETE",
    "DELETE_SCHEDULE",
    "DROP_TUBE",
    "KEEP_SESSIONS",
    "KICK",
    "MOVE",
    "NOTE_CALLS",
    "OPEN_SESSION",
    "OPTION_NAMES",
    "PUT",
    "RELEASE_ALL",
    "RESTART",
    "RUN_SCHEDULE",
    "SETTLE",
    "SNATCH",
    "STARTUP",
    "START_GROUP",
    "SWITCH",
    "TAKE",
    "TRIM_FEED",
    "TRUNCATE_TUBE",
    "UPDATE",
    "UPDATE_SCHEDULE",
    "UPDATE_TUBE",
    "Form",
    "new_task",
    "payload_bytes",
    "specs_of",
    "tube_options",
    "update_tube",
]
