"""Every codec decodes all fields of its request, and applies the defaults of absent fields."""

import pytest

from taskraft.v1 import (
    bulk_sweep_pb2,
    cluster_service_pb2,
    feed_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.audit import RECORD_ACT
from taskraft_service.command_codecs.batch import BATCH
from taskraft_service.command_codecs.bulk_sweeps import (
    RUN_BULK_SWEEP,
    START_BULK_SWEEP,
    STOP_BULK_SWEEP,
)
from taskraft_service.command_codecs.commit_cursor import COMMIT_CURSOR
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.registry import DECODERS
from taskraft_service.command_codecs.request_key import RequestKey
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
from taskraft_service.languages.filter_text import read_filter
from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkRequest
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import TaskProgress
from taskraft_service.queue.entities.tube_options import TtlPolicy, TubeKind, TubeOptions
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.bulk_sweeps import (
    RunBulkSweep,
    StartBulkSweep,
    StopBulkSweep,
)
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.feed import CommitCursor
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import SetClusterVersion, SetWallOffset
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByFilter, ByIds, ByKeys
from taskraft_service.queue.operations.sessions import CloseSession, KeepSessions, OpenSession
from taskraft_service.queue.operations.settings import Configure
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
    Touch,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import DropTube, TruncateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.transitions.updating import TaskUpdate
from taskraft_service.stubs.log.v1 import log_pb2
from tests.service.command_codecs.examples import (
    BY_IDS,
    CHANGES,
    FAILURE,
    FILTER,
    FULL_SPEC,
    FULL_TASK,
    HASH,
    IDS,
    KEYED_SPEC,
    KEYED_TASK,
    KEYS,
    SAID_UPDATE,
    WHY,
    plain,
    settle,
    settled,
)
from tests.service.command_codecs.workflow_cases import WORKFLOW_CASES

CASES = {
    "put all that can be said": (
        PUT,
        pb.PutTasksRequest(
            request_id="r", tube="t", tasks=[FULL_SPEC], atomic=True, room_wait_ms=1
        ),
        Put("t", [FULL_TASK], atomic=True, request_id="r", request_hash=HASH,
                 waits_for_room=True),
    ),
    "put payloads of several lengths, with and without more": (
        PUT,
        pb.PutTasksRequest(
            tube="t",
            tasks=[
                {"payload": b"aa"}, {"payload": b"bb"}, {"payload": b"c"}, KEYED_SPEC,
                {"payload": b"x" * 200}, {},
            ],
        ),
        Put(
            "t",
            [plain(b"aa"), plain(b"bb"), plain(b"c"), KEYED_TASK, plain(b"x" * 200),
             NewTask(b"", 0)],
            request_hash=HASH,
        ),
    ),
    "take all that can be said": (
        TAKE,
        pb.TakeTasksRequest(
            request_id="r", sources=[{"tube": "a", "weight": 2}, {"tube": "b", "weight": 1}],
            session_id="s", tasks_max=5, bytes_max=6, types=["x"], priority_bound=-2, ttr_ms=7,
            task_id=8,
        ),
        Take(["a", "b"], "s", 5, 6, 7, ("x",), -2, 8, "r", HASH, (2, 1)),
    ),
    "take as little": (
        TAKE,
        pb.TakeTasksRequest(sources=[{"tube": "a"}]),
        Take(["a"], request_hash=HASH),
    ),
    "acknowledge": (SETTLE, settle(1, 2, ack=pb.Settlement.Ack()), settled(Ack([1, 2]))),
    "acknowledge, and keep": (
        SETTLE,
        settle(
            1,
            ack=pb.Settlement.Ack(
                result=b"r", result_content_type="c", keep=3, retain_ms=4, payload=b"p"
            ),
        ),
        settled(
            Ack(
                [1], b"r", "c", Keep.ZOMBIE, 4,
                TaskUpdate(content=task_pb2.TaskUpdate(payload=b"p").SerializeToString()),
            )
        ),
    ),
    "acknowledge, and say where to": (
        SETTLE, settle(1, ack=pb.Settlement.Ack(keep=1)), settled(Ack([1], keep=Keep.REMOVE)),
    ),
    "acknowledge with results that are empty": (
        SETTLE,
        settle(1, ack=pb.Settlement.Ack(result=b"", retain_ms=0, payload=b"")),
        settled(
            Ack(
                [1], b"", retain_ms=0,
                update=TaskUpdate(
                    content=task_pb2.TaskUpdate(payload=b"").SerializeToString()
                ),
            )
        ),
    ),
    "release": (SETTLE, settle(1, release=pb.Settlement.Release()), settled(Release([1]))),
    "release with all that can be said": (
        SETTLE,
        settle(
            1,
            release=pb.Settlement.Release(
                delay_ms=2, ttl_policy=3, ttl_ms=4, position=1, move_to="m", uncounted=True,
                failure=FAILURE, update=SAID_UPDATE,
            ),
        ),
        settled(
            Release(
                [1], 2, TtlPolicy.RESET, 4, Position.FRONT, uncounted=True, failure=WHY,
                move_to="m", update=CHANGES,
            )
        ),
    ),
    "release at once": (
        SETTLE,
        settle(1, release=pb.Settlement.Release(delay_ms=0)),
        settled(Release([1], 0)),
    ),
    "bury": (SETTLE, settle(1, bury=pb.Settlement.Bury()), settled(BuryTaken([1]))),
    "bury with reason": (
        SETTLE,
        settle(1, bury=pb.Settlement.Bury(failure=FAILURE, update=SAID_UPDATE)),
        settled(BuryTaken([1], WHY, CHANGES)),
    ),
    "reject": (
        SETTLE,
        pb.SettleTasksRequest(
            request_id="r", atomic=True,
            settlements=[
                {"tokens": [1], "reject": {"failure": FAILURE}}, {"tokens": [2], "reject": {}}
            ],
        ),
        Settle([Reject([1], WHY), Reject([2])], True, "r", HASH),
    ),
    "touch": (
        SETTLE,
        pb.SettleTasksRequest(
            settlements=[
                {"tokens": [1], "touch": {"increment_ms": 3}},
                {"tokens": [2], "touch": {
                    "restart": True, "progress": {"basis_points": 4, "note": "n"}}},
            ]
        ),
        settled(
            Touch([1], 3), Touch([2], restart=True, progress=TaskProgress(4, "n"))
        ),
    ),
    "kick the first": (
        KICK, pb.KickTasksRequest(tube="t"), Kick("t", 1, request_hash=HASH),
    ),
    "kick all that can be said": (
        KICK,
        pb.KickTasksRequest(
            request_id="r", tube="t", count=4, selector=IDS, delay_ms=5, update=SAID_UPDATE
        ),
        Kick("t", 4, BY_IDS, 5, "r", HASH, CHANGES),
    ),
    "bury by key": (
        BURY,
        pb.BuryTasksRequest(request_id="r", tube="t", selector=KEYS, failure=FAILURE),
        Bury("t", ByKeys([("a", "b")]), WHY, "r", HASH),
    ),
    "bury without reason": (
        BURY,
        pb.BuryTasksRequest(tube="t", selector=IDS),
        Bury("t", BY_IDS, request_hash=HASH),
    ),
    "delete by filter": (
        DELETE,
        pb.DeleteTasksRequest(request_id="r", tube="t", selector=FILTER),
        Delete("t", ByFilter(read_filter("id > 5"), 7, 9), "r", HASH),
    ),
    "delete by a filter without bounds": (
        DELETE,
        pb.DeleteTasksRequest(tube="t", selector={"filter": "id > 5"}),
        Delete("t", ByFilter(read_filter("id > 5"), 1_000, 0), request_hash=HASH),
    ),
    "move": (
        MOVE,
        pb.MoveTasksRequest(
            request_id="r", tube="t", selector=IDS, move_to="m", delay_ms=2, position=1,
            renew_times=True, update=SAID_UPDATE,
        ),
        Move("t", BY_IDS, "m", 2, Position.FRONT, True, "r", HASH, CHANGES),
    ),
    "move as little": (
        MOVE,
        pb.MoveTasksRequest(tube="t", selector=IDS),
        Move("t", BY_IDS, request_hash=HASH),
    ),
    "update": (
        UPDATE,
        pb.UpdateTasksRequest(
            request_id="r", tube="t", selector=IDS, update={"delay_ms": 0, "priority": 0}
        ),
        UpdateTasks("t", BY_IDS, TaskUpdate(b"", 0, 0), "r", HASH),
    ),
    "snatch": (
        SNATCH,
        pb.SnatchTasksRequest(request_id="r", tube="t", selector=IDS, delay_ms=3),
        Snatch("t", BY_IDS, 3, "r", HASH),
    ),
    "restart": (
        RESTART,
        pb.RestartTasksRequest(request_id="r", tube="t", selector=IDS, delay_ms=3),
        Restart("t", BY_IDS, 3, "r", HASH),
    ),
    "switch": (
        SWITCH,
        pb.SwitchTasksRequest(request_id="r", tube="t", selector=IDS, state=2, duration_ms=3),
        Switch("t", BY_IDS, State.DELAYED, 3, "r", HASH),
    ),
    "cancel": (
        CANCEL,
        pb.CancelTasksRequest(request_id="r", tube="t", selector=IDS),
        Cancel("t", BY_IDS, "r", HASH),
    ),
    "a batch": (
        BATCH,
        pb.ExecuteBatchRequest(
            request_id="r",
            operations=[
                {"put": {"tube": "t", "tasks": [{"payload": b"1"}]}},
                {"settle": settle(1, ack=pb.Settlement.Ack())},
                {"kick": {"tube": "t", "selector": IDS}},
                {"bury": {"tube": "t", "selector": IDS}},
                {"delete": {"tube": "t", "selector": IDS, "request_id": "own"}},
                {"update": {"tube": "t", "selector": IDS, "update": {"priority": 1}}},
                {"move": {"tube": "t", "selector": IDS, "move_to": "m"}},
            ],
        ),
        ExecuteBatch(
            [
                Put("t", [plain(b"1")]),
                Settle([Ack([1])]),
                Kick("t", 1, BY_IDS),
                Bury("t", BY_IDS),
                Delete("t", BY_IDS, "own"),
                UpdateTasks("t", BY_IDS, TaskUpdate(b"", 1)),
                Move("t", BY_IDS, "m"),
            ],
            "r",
            HASH,
        ),
    ),
    "a consumer's position": (
        COMMIT_CURSOR,
        feed_service_pb2.CommitCursorRequest(
            request_id="r", consumer="c", cursor={"feed_id": "f", "next_seq": {1: 2}},
            idle_ttl_ms=3,
        ),
        CommitCursor("c", "f", {1: 2}, 3, "r", HASH),
    ),
    "a consumer that is forgotten": (
        COMMIT_CURSOR,
        feed_service_pb2.CommitCursorRequest(consumer="c"),
        CommitCursor("c", "", None, 7 * 86_400_000, "", HASH),
    ),
    **WORKFLOW_CASES,
    "a session": (
        OPEN_SESSION,
        log_pb2.OpenSession(
            request={"request_id": "r", "name": "n", "ttr_ms": 5, "labels": {"b": "2", "a": "1"}},
            session_id="i", as_settings=True, owner="o",
        ),
        OpenSession("i", "n", 5, "r", HASH, True, "o", (("a", "1"), ("b", "2"))),
    ),
    "a session of a usual time": (
        OPEN_SESSION,
        log_pb2.OpenSession(session_id="i"),
        OpenSession("i", "", 15_000, request_hash=HASH),
    ),
    "a session that ends with its stream": (
        OPEN_SESSION,
        log_pb2.OpenSession(session_id="i", request={"ttr_ms": 5}, ends_with_stream=True),
        OpenSession("i", "", 0, request_hash=HASH),
    ),
    "keep sessions": (
        KEEP_SESSIONS,
        session_service_pb2.KeepSessionsRequest(session_ids=["a", "b"]),
        KeepSessions(["a", "b"]),
    ),
    "close a session": (
        CLOSE_SESSION,
        session_service_pb2.CloseSessionRequest(request_id="r", session_id="i", uncounted=True),
        CloseSession("i", True, "r", HASH),
    ),
    "settings": (
        CONFIGURE,
        cluster_service_pb2.ConfigureRequest(
            request_id="r", settings={"auto_create_kind": 4, "auto_create_tubes": False}
        ),
        Configure(
            ReplicatedSettings(auto_create_kind=TubeKind.UTUBE, auto_create_tubes=False),
            "r",
            HASH,
        ),
    ),
    "drop": (
        DROP_TUBE,
        tube_service_pb2.DropTubeRequest(request_id="r", name="t", force=True),
        DropTube("t", True, "r", HASH),
    ),
    "truncate": (
        TRUNCATE_TUBE,
        tube_service_pb2.TruncateTubeRequest(request_id="r", name="t"),
        TruncateTube("t", "r", HASH),
    ),
    "release all": (
        RELEASE_ALL,
        tube_service_pb2.ReleaseAllRequest(request_id="r", name="t"),
        ReleaseAll("t", "r", HASH),
    ),
    "options, some of them back to their defaults": (
        UPDATE_TUBE,
        tube_service_pb2.UpdateTubeRequest(
            request_id="r",
            name="t",
            options={"priority_order": 2, "ttl_ms": 0},
            update_mask={"paths": ["priority_order", "ttl_ms", "ttr_ms", "ttl_ms"]},
        ),
        UpdateTube(
            "t", TubeOptions(higher_first=True, ttl_ms=0), ["higher_first", "ttl_ms"],
            ["ttr_ms"], "r", HASH,
        ),
    ),
    "a wall offset": (
        SET_WALL_OFFSET,
        log_pb2.SetWallOffset(wall_offset_ms=-5),
        SetWallOffset(-5),
    ),
    "a bulk sweep": (
        START_BULK_SWEEP,
        log_pb2.StartBulkSweep(
            request={"tube": "t", "filter": "id > 1", "ids": [3], "action": 5, "move_to": "u",
                     "bury_reason": "b", "rate_per_second": 9, "request_id": "r"},
            principal="root",
        ),
        StartBulkSweep(
            BulkRequest("t", "id > 1", (3,), BulkAction.MOVE, "u", "b", 9, "root"), "r", HASH
        ),
    ),
    "a step of a bulk sweep": (
        RUN_BULK_SWEEP,
        log_pb2.RunBulkSweep(number=7, step=2, kick={"tube": "t", "selector": {"ids": [1]}}),
        RunBulkSweep(7, 2, Kick("t", 1, ByIds([1]), 0)),
    ),
    "the end of a bulk sweep": (
        RUN_BULK_SWEEP,
        log_pb2.RunBulkSweep(number=7, step=2, problem="no"),
        RunBulkSweep(7, 2, None, "no"),
    ),
    "a stop of a bulk sweep": (
        STOP_BULK_SWEEP,
        bulk_sweep_pb2.StopBulkSweepRequest(number=7, request_id="r"),
        StopBulkSweep(7, "r", HASH),
    ),
    "an act": (
        RECORD_ACT,
        log_pb2.RecordAct(act={"principal": "root", "peer": "p", "call": "AddMember",
                               "names": ["*"], "detail": "d"}),
        RecordAct(ManagedAct("root", "p", "AddMember", ("*",), "d")),
    ),
    "a plan": (SET_CLUSTER_VERSION, log_pb2.SetClusterVersion(planned=2), SetClusterVersion(0, 2)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_command_has_the_values_of_its_request(case):
    codec, message, command = CASES[case]
    raw = message.SerializeToString()
    assert codec.decode(raw, RequestKey(HASH)) == command


def test_every_codec_has_an_example():
    tried = {codec.number for codec, _, _ in CASES.values()}
    by_options = {CREATE_TUBE.number}
    of_the_leader = {one.number for one in (ATTACH_SESSION, STARTUP, TRIM_FEED, NOTE_CALLS)}
    assert tried | by_options | of_the_leader == set(DECODERS)
