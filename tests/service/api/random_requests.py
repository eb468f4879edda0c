"""Generate random requests of any kind from the contract: valid ones, and ones with nonsense."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1.task_service_pb2 import TakeTasksRequest

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
TUBES = ("timed", "timed", "plain", "lanes", "memory")
SESSION = "00000000-0000-4000-8000-000000000000"
TEXTS = ("", "a", "b", "é")
WILD_TEXTS = ("x" * 129, "x" * 5000, "\0", "a\0b", "\U0001f600" * 33, "a/b\n", "%", "*")
SOUND = {
    "tube": TUBES,
    "tubes": TUBES,
    "names": (*TUBES, "*"),
    "move_to": ("", *TUBES),
    "dead_letter_tube": ("", *TUBES),
    "name": (*TUBES, "one", "two", "n0"),
    "filter": ("", "id > 0", "state = READY"),
    "cron": ("0 0 1 1 *",),
    "time_zone": ("", "Europe/Vienna"),
    "request_id": ("", "", "", "", "one", "two"),
    "client_id": ("", "", "a", "b"),
    "session_id": ("", SESSION),
    "session_ids": (SESSION,),
    "order_by": ("", "id", "id desc", "taking", "kicking"),
    "profile": ("", "", "tarantool", "xqueue", "t15", "rsqueue"),
    "page_token": ("", "YQ=="),
    "feed_id": ("",),
    "paths": ("ttl_ms", "retry", "capacity_tasks"),
    "parts": ("a", "b"),
    "unique_key": ("a", "b"),
    "chunk_bytes_max": (0, 4096),
    "partition": (0, 1),
    "wait_ms": (0, 1),
    "room_wait_ms": (0, 0, 1),
    "outcome_wait_ms": (0, 0, 1),
    "driver": ("",),
    "driver_version": (0,),
    "on_conflict": (0,),
    "unique_states": (1,),
    "durability": (0, 1, 2),
    "state": (1, 4, 5),
    "basis_points": (0, 10_000),
    "jitter_percent": (0, 100),
    "factor_percent": (0, 100, 200),
    "backoff_ms": (0, 1000),
    "backoff_ms_max": (0, 100_000, INT64[1]),
    "idle_ttl_ms": (0, 1_000_000),
    "feed_retention_ms": (10**12,),
    "feed_bytes_max": (10**12,),
    "session_ttr_ms": (86_400_000,),
    "failover_grace_ms": (15_000,),
    "auto_create_tubes": (False,),
}
"""Valid values by field name."""
WILD = {
    "tube": ("nowhere", "t*", "a b", "", "x" * 129, "\0", "\U0001f600"),
    "filter": (
        "attempt >",
        "(" * 70,
        "\0",
        "type = \U0001f600",
        "x" * 3000,
        "key.9 = a",
        "age > 1",
    ),
    "cron": (
        "0 0 31 2 *",
        "61 * * * *",
        "",
        "* * * * * *",
        "\0 * * * *",
        "L * * * *",
        "*/0 * * * *",
    ),
    "time_zone": ("../../etc/passwd", "\0", "x" * 5000, "UTC\0", "/", "Europe", "\U0001f600"),
    "request_id": ("x" * 65, "\0", "\U0001f600" * 16),
    "client_id": ("x" * 129, "\0", "\U0001f600" * 33),
    "session_id": ("mine", "\0", SESSION + "\n"),
    "page_token": ("?", "eHl6", "\U0001f600", "=" * 100, "AAAA", "MTox"),
    "wait_ms": (-1, INT64[0]),
    "room_wait_ms": (-1, INT64[0]),
    "outcome_wait_ms": (-1, INT64[0]),
    "paths": ("nothing", "", "retry.attempts_max"),
}
"""Invalid values by field name, in addition to the invalid values of the field's type."""
NEEDED = {
    *("tube", "tasks", "sources", "selector", "settlements", "tokens", "ids", "name"),
    "taskraft.v1.TakeTasksRequest.ttr_ms",
}
"""Fields that valid requests always set, by name or by full name."""
DEPTH_MAX = 5
ITEMS_MAX = 2


def requests_of(descriptor: Descriptor) -> st.SearchStrategy[Message]:
    """Return a strategy of messages of one kind."""
    return st.sampled_from((0, 0, 4, 12)).flatmap(
        lambda wildness: _message(descriptor, wildness, DEPTH_MAX)
    )


_MADE: dict[tuple[str, int, int], st.SearchStrategy[Message]] = {}


def _message(descriptor: Descriptor, wildness: int, depth: int) -> st.SearchStrategy[Message]:
    """Return a strategy of messages; ``wildness`` of 16 fields hold nonsense."""
    key = (descriptor.full_name, wildness, depth)
    if key not in _MADE:
        _MADE[key] = st.composite(_drawn)(descriptor, wildness, depth)
    return _MADE[key]


def _drawn(draw, descriptor: Descriptor, wildness: int, depth: int) -> Message:
    message = GetMessageClass(descriptor)()
    fields = [field for field in descriptor.fields if depth or field.message_type is None]
    chosen = draw(st.integers(0, (1 << len(fields)) - 1)) if fields else 0
    wild = draw(st.lists(st.integers(0, 15), min_size=len(fields), max_size=len(fields)))
    for place, field in enumerate(fields):
        is_wild = wild[place] < wildness
        if chosen >> place & 1 or (
            field.full_name in NEEDED or (field.name in NEEDED and not is_wild)
        ):
            _set(message, field, draw(_field(field, wildness, depth, is_wild=is_wild)))
    if not wildness:
        _mend(message, draw)
    return message


def _mend(message: Message, draw) -> None:
    """Remove contradictions between the fields of a valid message."""
    if isinstance(message, task_pb2.TaskSelector):
        ways = [way for way in ("ids", "keys", "filter") if getattr(message, way)]
        for way in ways[1:]:
            message.ClearField(way)
        if not message.filter:
            message.ClearField("tasks_max")
            message.ClearField("after_id")
    elif isinstance(message, tube_service_pb2.UpdateTubeRequest):
        names = [field.name for field, _ in message.options.ListFields()]
        message.update_mask.paths[:] = names or ["ttl_ms"]
    elif isinstance(message, tube_service_pb2.GetStatisticsRequest) and message.order_by:
        message.ClearField("page_token")
        message.ClearField("changed_since_revision")
    elif isinstance(message, TakeTasksRequest) and message.HasField("task_id"):
        message.ClearField(draw(st.sampled_from(("task_id", "types"))))


def _set(message: Message, field: FieldDescriptor, drawn) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name).update(drawn)
    elif field.is_repeated:
        getattr(message, field.name).extend(drawn)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(drawn)
    else:
        setattr(message, field.name, drawn)


def _field(field: FieldDescriptor, wildness: int, depth: int, *, is_wild: bool):
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, content = kind.fields_by_name["key"], kind.fields_by_name["value"]
        scalars = (_scalar(key, is_wild=is_wild), _scalar(content, is_wild=is_wild))
        return st.dictionaries(*scalars, max_size=ITEMS_MAX)
    one = _scalar(field, is_wild=is_wild) if kind is None else _message(kind, wildness, depth - 1)
    least = 0 if is_wild else 1
    return st.lists(one, min_size=least, max_size=ITEMS_MAX) if field.is_repeated else one


def _scalar(field: FieldDescriptor, *, is_wild: bool) -> st.SearchStrategy:
    return st.sampled_from(_wild(field) if is_wild else _sound(field))


def _sound(field: FieldDescriptor) -> tuple:
    is_text = field.type == FieldDescriptor.TYPE_STRING
    if field.name in SOUND and is_text == isinstance(SOUND[field.name][0], str):
        return SOUND[field.name]
    if field.enum_type is not None:
        return tuple(choice.number for choice in field.enum_type.values)
    match field.type:
        case FieldDescriptor.TYPE_BOOL:
            return (False, True)
        case FieldDescriptor.TYPE_STRING:
            return TEXTS
        case FieldDescriptor.TYPE_BYTES:
            return (b"", b"x", b"\0\xff")
        case FieldDescriptor.TYPE_INT32:
            return (0, 1, 2, 100)
        case _:
            assert field.type == FieldDescriptor.TYPE_INT64, field.full_name
            # Use long times, so that nothing expires while requests are generated.
            far = (80_000_000, INT64[1])
            return far if field.name.endswith("_ms") else (1, 2, 3, 4, *far)


def _wild(field: FieldDescriptor) -> tuple:
    known = WILD.get(field.name, ())
    if field.name in {"tubes", "names", "move_to", "dead_letter_tube", "name"}:
        known = WILD["tube"]
    if field.enum_type is not None:
        return (-1, 99, INT32[1])
    match field.type:
        case FieldDescriptor.TYPE_BOOL:
            return (False, True)
        case FieldDescriptor.TYPE_STRING:
            return (*known, *WILD_TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return (b"x" * 9000,)
        case FieldDescriptor.TYPE_INT32:
            return (*known, -1, 0, 1001, *INT32)
    return known or (-1, 10**13, 1 << 62, *INT64)
