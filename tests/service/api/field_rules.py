"""List the invalid values of each request field, by its name or by message and field.

A field of the contract without a rule fails the test: either invalid values are listed, or the rule
says why every value is valid.
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
NEGATIVE = (-1, INT64_MIN)
NOTHING = ()
"""Every value of the type is valid, or the field is not checked."""

NAMES_OF_TUBES = ("", "a b", "x" * 129, "a\0", "\U0001f600")
TOO_LONG = ("x" * 129, "\U0001f600" * 33)
LABELS = (
    {"": "x"},
    {"x" * 65: ""},
    {"x": "y" * 1_024},
    {f"name-{number}": "" for number in range(17)},
)
RULES = {
    # rules by the name of the field
    "request_id": ("x" * 65, "\U0001f600" * 17, "a\0b"),
    "client_id": (*TOO_LONG, "a\0b"),
    "page_size": (-1, 1001, INT32_MIN, INT32_MAX),
    "page_token": ("?", "eHl6", "\0"),
    "tube": NAMES_OF_TUBES,
    "filter": ("attempt >", "a = 1", "(" * 70, "x" * 3000, "\0"),
    "session_id": ("mine", "\0", "00000000-0000-4000-8000-000000000000\n"),
    "types": TOO_LONG,
    "wait_ms": NEGATIVE,
    "ttr_ms": NEGATIVE,
    "ttl_ms": NEGATIVE,
    "delay_ms": NEGATIVE,
    "staleness_ms_max": (*NEGATIVE, 5),
    "priority": NOTHING,
    "priority_bound": NOTHING,
    # rules by message and field
    "AddMemberRequest.name": ("", "a b", "x" * 129, "\0"),
    "AddMemberRequest.peer_address": ("", "nowhere", "a:b", "a:99999999"),
    "AddMemberRequest.address": ("", "nowhere", "a:b", "a:99999999"),
    "AddMemberRequest.directory_id": ("?", "\0"),
    "AddMemberRequest.cluster_id": ("another",),
    "AddMemberRequest.lowest_cluster_version": (-1, INT32_MIN),
    "AddMemberRequest.highest_cluster_version": (1, -1, INT32_MIN),
    "RemoveMemberRequest.directory_id": ("?", "\0"),
    "SaveSnapshotRequest.offset": (1, *NEGATIVE),
    "SaveSnapshotRequest.snapshot_id": NOTHING,
    "ClusterSettings.failover_grace_ms": (*NEGATIVE, 86_400_001),
    "ClusterSettings.feed_retention_ms": (*NEGATIVE, 999),
    "ClusterSettings.upgrade_hold_ms": NEGATIVE,
    "ClusterSettings.cluster_version_max": (-1, -(2**31)),
    "ClusterSettings.feed_bytes_max": (*NEGATIVE, 1024 * 1024 - 1),
    "ClusterSettings.auto_create_profile": ("kafka", "\0"),
    "ClusterSettings.session_ttr_ms": (*NEGATIVE, 86_400_001),
    "WatchFeedRequest.wait_ms": NEGATIVE,
    "ReadChangesRequest.partition": (-1, 1000, INT32_MIN),
    "ReadChangesRequest.from_seq": NEGATIVE,
    "ReadChangesRequest.to_seq": NEGATIVE,
    "ReadChangesRequest.tubes": NAMES_OF_TUBES,
    "ReadChangesRequest.wait_ms": NEGATIVE,
    "ReadChangesRequest.chunk_bytes_max": (-1, 1, 4095, 4 * 1024 * 1024 + 1),
    "ResolveTimestampRequest.at_ms": NEGATIVE,
    "CommitCursorRequest.consumer": ("", *TOO_LONG),
    "CommitCursorRequest.idle_ttl_ms": (*NEGATIVE, 367 * 86_400_000),
    "Group.name": ("", *TOO_LONG),
    "TaskSpec.payload": (b"x" * 70_000,),
    "TaskSpec.content_type": ("x" * 256,),
    "TaskSpec.delay_ms": NOTHING,
    "TaskSpec.subqueue": TOO_LONG,
    "TaskSpec.unique_key": ("", "x" * 257),
    "TaskSpec.type": TOO_LONG,
    "TaskSpec.group": TOO_LONG,
    "TaskSpec.visible_at_ms": NEGATIVE,
    "TaskSpec.unique_ms": (0, *NEGATIVE),
    "RetryPolicy.attempts_max": (-1, 1_000_001, INT32_MAX),
    "RetryPolicy.backoff_ms": NEGATIVE,
    "RetryPolicy.factor_percent": (-1, 99, 100_001),
    "RetryPolicy.backoff_ms_max": NEGATIVE,
    "RetryPolicy.jitter_percent": (-1, 101),
    "TaskReference.id": NEGATIVE,
    "Dependency.item": (-1, 1, INT32_MIN),
    "StartGroupRequest.name": ("", *TOO_LONG),
    "CancelGroupRequest.name": ("", *TOO_LONG),
    "GetGroupRequest.name": ("", *TOO_LONG),
    "SetEndTaskRequest.name": ("", *TOO_LONG),
    "ListGroupsRequest.names": ("", *TOO_LONG),
    "GetScheduleRequest.name": ("", *TOO_LONG),
    "GetScheduleRequest.times_max": (-1, 101, INT32_MIN, INT32_MAX),
    "GetScheduleRequest.after_ms": NEGATIVE,
    "Schedule.name": ("", *TOO_LONG),
    "Schedule.cron": ("", "0 61 * * *", "\0 * * * *", "* * * * * *", "0 0 31 2 *", "*" * 300),
    "Schedule.time_zone": ("Nowhere", "../../etc/passwd", "\0", "x" * 5000, "Europe", "\U0001f600"),
    "Schedule.jitter_ms": (*NEGATIVE, 86_400_001),
    "DeleteScheduleRequest.name": ("", *TOO_LONG),
    "etag": TOO_LONG,
    "OpenSessionRequest.name": TOO_LONG,
    "OpenSessionRequest.ttr_ms": (-1, 999, 86_400_001),
    "KeepSessionsRequest.session_ids": ("", "mine"),
    "Open.session_ttr_ms": (-1, 86_400_001),
    "Open.silence_ms_max": (-1, 86_400_001),
    "Open.heartbeat_ms": (-1, 999, 86_400_001),
    "Open.session_name": TOO_LONG,
    "Credit.tasks": (-1, 100_001, INT32_MAX),
    "Credit.bytes": NEGATIVE,
    "PutTasksRequest.room_wait_ms": NEGATIVE,
    "PutTasksRequest.outcome_wait_ms": NEGATIVE,
    "TakeSource.weight": (-1, 1_000_001),
    "TakeTasksRequest.tasks_max": (-1, 1001),
    "TakeTasksRequest.bytes_max": NEGATIVE,
    "TakeTasksRequest.task_id": (0, *NEGATIVE),
    "Ack.result": (b"x" * (1024 * 1024 + 1),),
    "Ack.result_content_type": ("x" * 256,),
    "Ack.retain_ms": NEGATIVE,
    "Ack.payload": (b"x" * 70_000,),
    "Release.delay_ms": NOTHING,
    "Release.move_to": ("a b", "x" * 129, "\0"),
    "Failure.type": ("x" * 256,),
    "Failure.message": ("x" * 4097,),
    "TaskUpdate.payload": (b"x" * 70_000,),
    "TaskUpdate.content_type": ("x" * 256,),
    "TaskUpdate.headers_remove": ("", "x" * 129),
    "ReadChangesRequest.columns": ("", "tubes", "\0"),
    "Settlement.tokens": (0, *NEGATIVE),
    "Touch.increment_ms": NEGATIVE,
    "Progress.basis_points": (-1, 10_001),
    "Progress.note": ("x" * 256,),
    "TaskSelector.ids": (0, *NEGATIVE),
    "TaskSelector.tasks_max": (-1, 10_001),
    "TaskSelector.after_id": NEGATIVE,
    "UniqueKey.parts": ("", "x" * 257),
    "ListTasksRequest.order_by": ("priority", "\0"),
    "KickTasksRequest.count": (-1, INT32_MIN),
    "MoveTasksRequest.move_to": ("a b", "x" * 129, "\0"),
    "SwitchTasksRequest.duration_ms": NEGATIVE,
    "Tube.name": NAMES_OF_TUBES,
    "TubeOptions.retain_ms": NEGATIVE,
    "TubeOptions.capacity_tasks": NEGATIVE,
    "TubeOptions.capacity_bytes": NEGATIVE,
    "TubeOptions.buried_max": NEGATIVE,
    "TubeOptions.dead_letter_tube": ("a b", "x" * 129, "\0"),
    "TubeOptions.concurrency": (-1, INT32_MIN),
    "TubeOptions.subqueue_concurrency": (0, -1, INT32_MIN),
    "TubeOptions.rate_per_second": (-1, INT32_MIN),
    "TubeOptions.rate_burst": (-1, 5),
    "TubeOptions.subqueue_rate_per_second": (-1, INT32_MIN),
    "TubeOptions.subqueue_rate_burst": (-1, 5),
    "TubeOptions.priority_min": NOTHING,
    "TubeOptions.priority_max": NOTHING,
    "Tube.driver": ("given",),
    "Tube.driver_version": (1, -1),
    "CreateTubeRequest.profile": ("kafka", "\0"),
    "UpdateTubeRequest.name": NAMES_OF_TUBES,
    "FieldMask.paths": ("nothing", ""),
    "DropTubeRequest.name": NAMES_OF_TUBES,
    "TruncateTubeRequest.name": NAMES_OF_TUBES,
    "ReleaseAllRequest.name": NAMES_OF_TUBES,
    "ListTubesRequest.names": ("", "a b", "\0"),
    "GetStatisticsRequest.tubes": ("", "a b", "\0"),
    "changed_since_revision": NEGATIVE,
    "ListConsumersRequest.tube": NAMES_OF_TUBES,
    "StartBulkSweepRequest.filter": ("attempt >", "a = 1", "(" * 70, "x" * 1_901, "\0"),
    "StartBulkSweepRequest.ids": (0, *NEGATIVE),
    "StartBulkSweepRequest.move_to": ("a b", "x" * 129, "\0"),
    "StartBulkSweepRequest.bury_reason": ("x" * 201,),
    "StartBulkSweepRequest.rate_per_second": (-1, 10_001, INT32_MIN, INT32_MAX),
    # A number without a job is refused with a reason of its own, see test_bad_input.
    "GetBulkSweepRequest.number": NOTHING,
    "StopBulkSweepRequest.number": NOTHING,
    "ListAuditRequest.principal": NOTHING,
    "ListAuditRequest.call": NOTHING,
    "ListAuditRequest.name": NOTHING,
    "GetHistoryRequest.tubes": NAMES_OF_TUBES,
    "ListFailuresRequest.tubes": NAMES_OF_TUBES,
    "ListFailuresRequest.since_ms": NEGATIVE,
    "GetHistoryRequest.step_ms": (-1, 1, 60_000, INT32_MIN, INT32_MAX),
    "GetHistoryRequest.samples_max": (-1, 721, INT32_MIN, INT32_MAX),
    "GetTaskGraphRequest.id": (0, *NEGATIVE),
    "GetTaskGraphRequest.depth_max": (-1, 6, INT32_MIN, INT32_MAX),
    "GetTaskGraphRequest.tasks_max": (-1, 501, INT32_MIN, INT32_MAX),
    "GetTaskEventsRequest.before_ms": NEGATIVE,
    "GetTaskEventsRequest.task_id": NEGATIVE,
    "GetTaskEventsRequest.events_max": (-1, 101, INT32_MIN, INT32_MAX),
    "OpenTaskSnapshotRequest.keep_ms": (*NEGATIVE, 3_600_001),
    "ReadTaskSnapshotRequest.snapshot_id": NOTHING,
    "ReadTaskSnapshotRequest.after_id": NEGATIVE,
    "ReadTaskSnapshotRequest.last_id": NEGATIVE,
    # These fields are refused with a reason of their own, see test_bad_input.
    "PromoteMemberRequest.name": NOTHING,
    "RemoveMemberRequest.name": NOTHING,
    "TransferLeadershipRequest.name": NOTHING,
    "AddMemberRequest.replaced_id": NOTHING,
    "FeedCursor.feed_id": NOTHING,
    "ReadChangesRequest.feed_id": NOTHING,
    # The server sets these fields.
    "Tube.created_ms": NOTHING,
    "Tube.quarantined_at": NOTHING,
    "Tube.profile": NOTHING,
}
SET_BY_SERVER = {
    "Failure": {"fingerprint"},
    "Group": {"state", "open", "processed", "failed", "cancelled", "created_ms", "ended_ms",
              "last_task_id", "last_error", "owner"},
    "Schedule": {"next_ms", "last_ms", "last_task_id", "left_out", "last_error", "etag", "owner"},
}  # fmt: skip
OUT_OF_PLACE = {
    *("Consistency.staleness_ms_max", "Release.ttl_ms", "TaskUpdate.delay_ms"),
    *(
        "TubeOptions.rate_burst",
        "TubeOptions.subqueue_rate_burst",
        "Tube.driver_version",
        "SwitchTasksRequest.duration_ms",
    ),
    *("TaskSpec.on_dependency_failure", "TaskSelector.tasks_max", "TaskSelector.after_id"),
}
"""Fields that have no effect in the tested request, with any value."""
ITEMS_MAX = {
    "TaskSpec.unique_key": (8, "k"),
    "UniqueKey.parts": (8, "k"),
    "KeepSessionsRequest.session_ids": (1_000, "00000000-0000-4000-8000-000000000000"),
    "TaskSelector.ids": (10_000, 1),
    "ListTubesRequest.names": (1_000, "t"),
    "ListGroupsRequest.names": (1_000, "t"),
    "ListGroupsRequest.states": (4, 1),
    "GetStatisticsRequest.tubes": (1_000, "t"),
    "GetHistoryRequest.tubes": (200, "t"),
    "ListFailuresRequest.tubes": (200, "t"),
    "ReadChangesRequest.tubes": (1_000, "t"),
    "ReadChangesRequest.kinds": (1_000, 1),
    "ReadChangesRequest.columns": (1_000, "kind"),
    "TaskUpdate.headers_remove": (1_000, "h"),
    "Settlement.tokens": (10_000, 1),
}
"""Fields with a list of scalars: the maximum number of items, and one valid item."""
for name in ("TakeTasksRequest", "Open", "Filter"):
    ITEMS_MAX[f"{name}.types"] = (64, "t")
MESSAGES_MAX = {
    "PutTasksRequest.tasks": (10_000, {}),
    "TakeTasksRequest.sources": (64, {"tube": "t"}),
    "Open.sources": (64, {"tube": "t"}),
    "SettleTasksRequest.settlements": (10_000, {"tokens": [1], "ack": {}}),
    "SubscribeRequest.settlements": (10_000, {"tokens": [1], "ack": {}}),
    "ExecuteBatchRequest.operations": (100, {"put": {"tube": "emails", "tasks": [{}]}}),
    "TaskSelector.keys": (10_000, {"parts": ["k"]}),
    "TaskSpec.depends_on": (100, {"task": {"tube": "emails", "id": 1}}),
}
"""Fields with a list of messages: the maximum number of items, and one valid item."""
MAPS = {
    "TaskSpec.headers": ({"": b""}, {"x" * 129: b""}, {"h": b"x" * 8192}),
    "TaskUpdate.headers_set": ({"": b""}, {"x" * 129: b""}, {"h": b"x" * 8192}),
    "TubeOptions.subqueue_weights": (
        {"a": 0},
        {"a": INT32_MIN},
        {"x" * 129: 1},
        {f"{number}": 1 for number in range(1_001)},
    ),
    "OpenSessionRequest.labels": LABELS,
    "Open.session_labels": LABELS,
    "FeedCursor.next_seq": ({-1: 0}, {INT32_MAX: 0}, {0: -1}, {0: INT64_MIN}),
}
"""Invalid entries of maps."""
UNKNOWN_CHOICES = (-1, 99, INT32_MAX)
DEPTH_MAX = 8


def paths_of(descriptor: Descriptor, depth: int = DEPTH_MAX):
    """Yield the path to each field of a request: the fields on the way, and the field itself."""
    for field in descriptor.fields:
        if field.name in SET_BY_SERVER.get(descriptor.name, ()) or is_map(field):
            continue
        if field.message_type is None:
            yield (field,)
        elif depth:
            for rest in paths_of(field.message_type, depth - 1):
                yield (field, *rest)


def paths_to(descriptor: Descriptor, is_wanted, depth: int = DEPTH_MAX):
    """Yield the paths to the wanted fields of messages, with the fields on the way."""
    for field in descriptor.fields:
        if field.name in SET_BY_SERVER.get(descriptor.name, ()) or field.message_type is None:
            continue
        if is_wanted(field):
            yield (field,)
        if depth and not is_map(field):
            for rest in paths_to(field.message_type, is_wanted, depth - 1):
                yield (field, *rest)


def is_list_of_messages(field: FieldDescriptor) -> bool:
    return field.is_repeated and field.message_type is not None and not is_map(field)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def forbidden(field: FieldDescriptor):
    """Return the invalid values of a field; raise KeyError without a rule."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return NOTHING
    if field.enum_type is not None:
        return UNKNOWN_CHOICES
    own = f"{field.containing_type.name}.{field.name}"
    return RULES[own] if own in RULES else RULES[field.name]


def spelled(path) -> str:
    """Return a path in the notation of violations, with index 0 for lists."""
    return ".".join(f"{field.name}[0]" if field.is_repeated else field.name for field in path)


def list_of_too_many(field: FieldDescriptor):
    """Return too many valid items for a field with a list of scalars."""
    own = f"{field.containing_type.name}.{field.name}"
    if own not in ITEMS_MAX:
        return None
    most, item = ITEMS_MAX[own]
    return [item] * (most + 1)
