"""List the decoders of all commands by their number in the log.

The leader decodes a command before it proposes it, and each replica decodes it from the log, with
the same function; so all replicas see equal commands. The API has checked the requests before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from taskraft_service.command_codecs.audit import RECORD_ACT
from taskraft_service.command_codecs.batch import BATCH
from taskraft_service.command_codecs.bulk_sweeps import (
    RUN_BULK_SWEEP,
    START_BULK_SWEEP,
    STOP_BULK_SWEEP,
)
from taskraft_service.command_codecs.commit_cursor import COMMIT_CURSOR
from taskraft_service.command_codecs.groups import (
    CANCEL_GROUP,
    CREATE_GROUP,
    SET_END_TASK,
    START_GROUP,
)
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.schedules import (
    CREATE_SCHEDULE,
    DELETE_SCHEDULE,
    RUN_SCHEDULE,
    UPDATE_SCHEDULE,
)
from taskraft_service.command_codecs.selected_tasks import (
    BURY,
    CANCEL,
    DELETE,
    KICK,
    MOVE,
    RESTART,
    SNATCH,
    SWITCH,
    UPDATE,
)
from taskraft_service.command_codecs.sessions import (
    ATTACH_SESSION,
    CLOSE_SESSION,
    KEEP_SESSIONS,
    NOTE_CALLS,
    OPEN_SESSION,
    SET_CLUSTER_VERSION,
    SET_WALL_OFFSET,
    STARTUP,
    TRIM_FEED,
)
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import (
    CONFIGURE,
    CREATE_TUBE,
    DROP_TUBE,
    RELEASE_ALL,
    TRUNCATE_TUBE,
    UPDATE_TUBE,
)
from taskraft_service.queue.operations.registry import Command

DECODERS: Final[Mapping[int, Callable[[bytes, RequestKey, int, int, int], Command]]] = {
    PUT.number: PUT.decode,
    RECORD_ACT.number: RECORD_ACT.decode,
    START_BULK_SWEEP.number: START_BULK_SWEEP.decode,
    RUN_BULK_SWEEP.number: RUN_BULK_SWEEP.decode,
    STOP_BULK_SWEEP.number: STOP_BULK_SWEEP.decode,
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
    SET_END_TASK.number: SET_END_TASK.decode,
    CREATE_SCHEDULE.number: CREATE_SCHEDULE.decode,
    UPDATE_SCHEDULE.number: UPDATE_SCHEDULE.decode,
    DELETE_SCHEDULE.number: DELETE_SCHEDULE.decode,
    RUN_SCHEDULE.number: RUN_SCHEDULE.decode,
    STARTUP.number: STARTUP.decode,
    TRIM_FEED.number: TRIM_FEED.decode,
    NOTE_CALLS.number: NOTE_CALLS.decode,
    SET_WALL_OFFSET.number: SET_WALL_OFFSET.decode,
    SET_CLUSTER_VERSION.number: SET_CLUSTER_VERSION.decode,
    COMMIT_CURSOR.number: COMMIT_CURSOR.decode,
}
"""Decoders by field number; each takes the bytes, the request's key, and the cluster version."""
