"""Refuse a request with a list that is too long before anything walks the list.

A list is a repeated field or a map. Each list has a maximum length, and all lists of the same field
in one request have a maximum together, because the product of two maxima would be too much: 1 000
tasks can have 100 dependencies each. The cost of the check depends on the number of lists, not on
their lengths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.message import Message

from taskraft.v1 import group_service_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.command_codecs.put import specs_of
from taskraft_service.machine import failure_counts, tube_sampler
from taskraft_service.queue.entities.option_checks import SUBQUEUE_WEIGHTS_MAX

SHORT_REQUEST_BYTES: Final = 4 * 1024
"""Size up to which a request has no list that is too expensive. The handlers check such a request,
and report the other violations too."""
ENDED_CALLS_MAX: Final = 1_000
"""Maximum number of calls that another node ends with one request."""
FORWARDED_CALLS_MAX: Final = 64
"""Maximum number of calls that another node forwards with one message."""
PARTITIONS_MAX: Final = 1_024
"""Maximum number of partitions in one cursor of the change feed."""
MASK_PATHS_MAX: Final = 100
"""Maximum number of fields that one update names."""
_TASK_STATES: Final = len(task_pb2.Task.State.values())


class Maximum(NamedTuple):
    """The maximum number of elements of one list, and of all lists of the field in a request."""

    each: int
    total: int


def _one(each: int) -> Maximum:
    return Maximum(each, each)


_NAMES: Final = _one(limits.NAMES_MAX)
_HEADERS_OF_UPDATES: Final = Maximum(limits.HEADERS_MAX, limits.UPDATE_HEADERS_MAX)

LIST_MAXIMA: Final[Mapping[str, Maximum]] = {
    "externalscaler.ScaledObjectRef.scalerMetadata": _NAMES,
    "google.protobuf.FieldMask.paths": _one(MASK_PATHS_MAX),
    "taskraft.forwarding.v1.EndCallsRequest.keys": _one(ENDED_CALLS_MAX),
    "taskraft.forwarding.v1.ForwardCallsRequest.calls": _one(FORWARDED_CALLS_MAX),
    "taskraft.v1.Error.metadata": _NAMES,
    "taskraft.v1.ExecuteBatchRequest.operations": _one(limits.BATCH_OPERATIONS_MAX),
    "taskraft.v1.FeedCursor.next_seq": _one(PARTITIONS_MAX),
    "taskraft.v1.GetHistoryRequest.tubes": _one(tube_sampler.TUBES_MAX),
    "taskraft.v1.GetStatisticsRequest.tubes": _NAMES,
    "taskraft.v1.KeepSessionsRequest.session_ids": _one(limits.SESSIONS_PER_KEEP_MAX),
    "taskraft.v1.ListFailuresRequest.tubes": _one(failure_counts.TUBES_MAX),
    "taskraft.v1.ListGroupsRequest.names": _NAMES,
    "taskraft.v1.ListGroupsRequest.states": _one(len(group_service_pb2.Group.State.values())),
    "taskraft.v1.ListTubesRequest.names": _NAMES,
    "taskraft.v1.OpenSessionRequest.labels": _one(limits.SESSION_LABELS_MAX),
    "taskraft.v1.PutTasksRequest.tasks": _one(limits.PUT_TASKS_MAX),
    "taskraft.v1.ReadChangesRequest.columns": _NAMES,
    "taskraft.v1.ReadChangesRequest.contents": _NAMES,
    "taskraft.v1.ReadChangesRequest.kinds": _NAMES,
    "taskraft.v1.ReadChangesRequest.tubes": _NAMES,
    "taskraft.v1.SettleTasksRequest.settlements": _one(limits.PUT_TASKS_MAX),
    "taskraft.v1.Settlement.tokens": _one(limits.PUT_TASKS_MAX),
    "taskraft.v1.StartBulkSweepRequest.ids": _one(limits.SWEEP_IDS_MAX),
    "taskraft.v1.SubscribeRequest.Filter.types": _one(limits.TAKE_TYPES_MAX),
    "taskraft.v1.SubscribeRequest.Open.session_labels": _one(limits.SESSION_LABELS_MAX),
    "taskraft.v1.SubscribeRequest.Open.sources": _one(limits.TAKE_SOURCES_MAX),
    "taskraft.v1.SubscribeRequest.Open.types": _one(limits.TAKE_TYPES_MAX),
    "taskraft.v1.SubscribeRequest.settlements": _one(limits.PUT_TASKS_MAX),
    "taskraft.v1.TakeTasksRequest.sources": _one(limits.TAKE_SOURCES_MAX),
    "taskraft.v1.TakeTasksRequest.types": _one(limits.TAKE_TYPES_MAX),
    "taskraft.v1.TaskSelector.ids": _one(limits.SELECTOR_IDS_MAX),
    "taskraft.v1.TaskSelector.keys": _one(limits.SELECTOR_IDS_MAX),
    "taskraft.v1.TaskSpec.depends_on": Maximum(
        limits.DEPENDENCIES_MAX, limits.PUT_DEPENDENCIES_MAX
    ),
    "taskraft.v1.TaskSpec.headers": Maximum(limits.HEADERS_MAX, limits.PUT_HEADERS_MAX),
    "taskraft.v1.TaskSpec.unique_key": Maximum(
        limits.KEY_PARTS_MAX, limits.KEY_PARTS_MAX * limits.PUT_TASKS_MAX
    ),
    "taskraft.v1.TaskSpec.unique_states": Maximum(
        _TASK_STATES, _TASK_STATES * limits.PUT_TASKS_MAX
    ),
    "taskraft.v1.TaskUpdate.headers_remove": _HEADERS_OF_UPDATES,
    "taskraft.v1.TaskUpdate.headers_set": _HEADERS_OF_UPDATES,
    "taskraft.v1.TubeOptions.subqueue_weights": _one(SUBQUEUE_WEIGHTS_MAX),
    "taskraft.v1.UniqueKey.parts": Maximum(
        limits.KEY_PARTS_MAX, limits.KEY_PARTS_MAX * limits.SELECTOR_IDS_MAX
    ),
}
"""The maxima of each list in a request of the contract, by the name of its field."""

Descriptor: TypeAlias = Any
"""Two types of the library, one of which has no stub."""
PathOf: TypeAlias = Callable[[int], str]
"""Returns the path of a message in the request, with a point at the end."""


class _Field(NamedTuple):
    """A field that is a list, or a message with lists."""

    name: str
    maximum: Maximum | None
    """None: the field is a message."""
    inner: Sequence[_Field]
    """The fields with lists of the messages in the field."""


def check_lists(request: Message, raw: bytes) -> None:
    """Check the lengths of all lists of a request longer than ``SHORT_REQUEST_BYTES``.

    Args:
        request: the request.
        raw: the request as received.

    Raises:
        CallRefused: INVALID_FIELD, a list is too long.
    """
    if (
        isinstance(request, pb.PutTasksRequest)
        and len(request.tasks) <= limits.PUT_TASKS_MAX
        and None not in specs_of(raw).plain_bytes
    ):
        return  # Tasks with only a payload have no lists; a look at each would double the checks.
    _check([request], fields_with_lists(request.DESCRIPTOR), lambda _place: "")


def _check(messages: Sequence[Message], fields: Sequence[_Field], path_of: PathOf) -> None:
    """Check the lists of messages of one type, which are all the content of one field."""
    for field in fields:
        if field.maximum is None:
            _check_inner_messages(messages, field, path_of)
        else:
            _check_lists(messages, field, field.maximum, path_of)


def _check_inner_messages(messages: Sequence[Message], field: _Field, path_of: PathOf) -> None:
    name = field.name
    places = [place for place, one in enumerate(messages) if one.HasField(name)]
    if places:
        inner = [getattr(messages[place], name) for place in places]
        _check(inner, field.inner, lambda at: f"{path_of(places[at])}{name}.")


def _check_lists(
    messages: Sequence[Message], field: _Field, maximum: Maximum, path_of: PathOf
) -> None:
    name = field.name
    lists = list(map(attrgetter(name), messages))
    lengths = list(map(len, lists))
    total = 0
    if max(lengths) > maximum.each or sum(lengths) > maximum.total:
        violations = Violations()
        for place, length in enumerate(lengths):
            path = f"{path_of(place)}{name}"
            total += length
            violations.check_count(path, lists[place], maximum.each)
            if total > maximum.total and not violations.is_any:
                text = f"{total} items in all lists of this field, more than {maximum.total}"
                violations.add(path, text, {"value": str(total), "limit": f"..{maximum.total}"})
            violations.raise_if_any()
    if field.inner and any(lengths):
        starts = list(accumulate(lengths, initial=0))

        def path_of_element(at: int) -> str:
            place = bisect_right(starts, at) - 1
            return f"{path_of(place)}{name}[{at - starts[place]}]."

        _check(list(chain.from_iterable(lists)), field.inner, path_of_element)


@cache
def fields_with_lists(kind: Descriptor) -> Sequence[_Field]:
    """Return the fields of a type of messages that are lists, or messages with lists.

    Raises:
        KeyError: a list has no maximum.
    """
    found = []
    for field in kind.fields:
        inner: Sequence[_Field] = ()
        message = field.message_type
        if message is not None and not message.GetOptions().map_entry:
            inner = fields_with_lists(message)
        if field.is_repeated:
            found.append(_Field(field.name, LIST_MAXIMA[field.full_name], inner))
        elif inner:
            found.append(_Field(field.name, None, inner))
    return tuple(found)
