"""Check the requests of TaskService against the limits of the contract.

What depends on the state (does the tube exist?) is the queue core's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.dependency_checks import check_dependencies, refuse_dependencies
from taskraft_service.api.tasks.settle_checks import POSITIONS
from taskraft_service.api.tasks.update_checks import check_retry
from taskraft_service.command_codecs.put import specs_of

_STATES: Final = frozenset(task_pb2.Task.State.values())


def put_violations(
    request: task_service_pb2.PutTasksRequest,
    raw: bytes,
    payload_bytes_max: int,
    items_before: int = 0,
) -> Violations:
    """Return what of a put breaks a limit.

    ``items_before`` are those of earlier puts of a batch.
    """
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_tube("tube", request.tube)
    plain_bytes = specs_of(raw).plain_bytes
    wrong.check_nonempty("tasks", plain_bytes, limits.PUT_TASKS_MAX)
    if request.room_wait_ms < 0 or request.outcome_wait_ms < 0:
        wrong.check_not_negative("room_wait_ms", request.room_wait_ms)
        wrong.check_not_negative("outcome_wait_ms", request.outcome_wait_ms)
    if request.outcome_wait_ms > 0 and len(plain_bytes) > limits.SELECTOR_IDS_MAX:
        most = limits.SELECTOR_IDS_MAX
        text = f"{len(plain_bytes)} items to wait for, more than {most}"
        wrong.add("tasks", text, {"value": str(len(plain_bytes)), "limit": f"..{most}"})
    for item, payload_bytes in enumerate(plain_bytes):
        if payload_bytes is None:
            spec = request.tasks[item]
            check_spec(wrong, f"tasks[{item}]", spec, payload_bytes_max)
            check_dependencies(wrong, f"tasks[{item}]", spec, items_before + item)
        elif payload_bytes > payload_bytes_max:
            wrong.check_size(f"tasks[{item}].payload", payload_bytes, payload_bytes_max)
    return wrong


def check_spec(
    wrong: Violations, path: str, spec: task_pb2.TaskSpec, payload_bytes_max: int
) -> None:
    """Check what a producer says about one task."""
    wrong.check_size(f"{path}.payload", len(spec.payload), payload_bytes_max)
    wrong.check_text(f"{path}.content_type", spec.content_type, limits.CONTENT_TYPE_BYTES_MAX)
    wrong.check_text(f"{path}.type", spec.type, limits.TYPE_BYTES_MAX)
    wrong.check_text(f"{path}.subqueue", spec.subqueue, limits.SUBQUEUE_BYTES_MAX)
    wrong.check_not_negative(f"{path}.ttl_ms", spec.ttl_ms)
    wrong.check_not_negative(f"{path}.ttr_ms", spec.ttr_ms)
    wrong.check_not_negative(f"{path}.visible_at_ms", spec.visible_at_ms)
    wrong.check_choice(f"{path}.position", spec.position, POSITIONS)
    if spec.unique_key:
        wrong.check_unique_key(f"{path}.unique_key", spec.unique_key)
    known = wrong.check_choice(
        f"{path}.on_conflict", spec.on_conflict, type(spec).OnConflict.values()
    )
    if known and spec.on_conflict and not spec.unique_key:
        wrong.add(f"{path}.on_conflict", "given without unique_key")
    _check_unique_among(wrong, path, spec)
    wrong.check_text(f"{path}.group", spec.group, limits.NAME_BYTES_MAX)
    if spec.HasField("retry"):
        check_retry(wrong, f"{path}.retry", spec.retry)
    if spec.headers:
        _check_headers(wrong, f"{path}.headers", spec)


def _check_unique_among(wrong: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    """Check among which tasks a unique key is one."""
    for place, state in enumerate(spec.unique_states):
        if not state or state not in _STATES:
            wrong.add(f"{path}.unique_states[{place}]", f"{state} is no state of a task")
    wrong.check_count(f"{path}.unique_states", spec.unique_states, len(_STATES))
    if spec.HasField("unique_ms"):
        wrong.check_positive(f"{path}.unique_ms", spec.unique_ms)
    if not spec.unique_key:
        if spec.unique_states:
            wrong.add(f"{path}.unique_states", "given without unique_key")
        if spec.HasField("unique_ms"):
            wrong.add(f"{path}.unique_ms", "given without unique_key")


def check_stored_spec(wrong: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    """Check a task that is kept, to be put later."""
    check_spec(wrong, path, spec, limits.STORED_PAYLOAD_BYTES_MAX)
    refuse_dependencies(wrong, path, spec)


def _check_headers(wrong: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    total = 0
    for name, content in spec.headers.items():
        wrong.check_text(f"{path}[{name[:32]}]", name, limits.HEADER_NAME_BYTES_MAX)
        if not name:
            wrong.add(path, "a header without a name")
        total += len(name.encode()) + len(content)
    wrong.check_size(path, total, limits.HEADERS_BYTES_MAX)


def _check_sources(
    wrong: Violations, path: str, sources: Sequence[task_service_pb2.TakeSource]
) -> None:
    wrong.check_nonempty(path, sources, limits.TAKE_SOURCES_MAX)
    for place, source in enumerate(sources):
        wrong.check_pattern(f"{path}[{place}].tube", source.tube)
        wrong.check_range(f"{path}[{place}].weight", source.weight, 0, limits.SOURCE_WEIGHT_MAX)
    if len({source.weight > 0 for source in sources}) > 1:
        wrong.add(path, "either all of them have a weight or none")


def _check_types(wrong: Violations, path: str, types: Sequence[str]) -> None:
    wrong.check_count(path, types, limits.TAKE_TYPES_MAX)
    for place, name in enumerate(types):
        if not name:
            wrong.add(f"{path}[{place}]", "is empty, and no type")
        wrong.check_text(f"{path}[{place}]", name, limits.TYPE_BYTES_MAX)


def check_take(request: task_service_pb2.TakeTasksRequest) -> None:
    """Refuse a take that breaks a limit."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    _check_sources(wrong, "sources", request.sources)
    _check_types(wrong, "types", request.types)
    if request.session_id:
        wrong.check_session_id("session_id", request.session_id)
    wrong.check_range("tasks_max", request.tasks_max, 0, limits.TAKE_TASKS_MAX)
    wrong.check_not_negative("bytes_max", request.bytes_max)
    wrong.check_not_negative("wait_ms", request.wait_ms)
    wrong.check_not_negative("ttr_ms", request.ttr_ms)
    if request.HasField("task_id"):
        wrong.check_positive("task_id", request.task_id)
        if len(request.sources) != 1 or "*" in request.sources[0].tube:
            wrong.add("sources", "task_id needs exactly one tube")
        for field, given in (
            ("types", bool(request.types)),
            ("priority_bound", request.HasField("priority_bound")),
        ):
            if given:
                wrong.add(field, "means nothing for a task that is chosen by task_id")
    wrong.raise_if_any()


def check_message(
    message: task_service_pb2.SubscribeRequest, tasks_open: int, *, is_first: bool
) -> None:
    """Refuse a message of a stream that breaks a limit, its settlements aside.

    ``tasks_open``: how many tasks its credit allows already.
    """
    wrong = Violations()
    if message.HasField("open") is not is_first:
        wrong.add("open", "missing in the first message" if is_first else "not the first message")
    elif is_first:
        _check_open(wrong, message.open)
    if message.HasField("filter"):
        _check_filter(wrong, message.filter)
    if message.HasField("credit"):
        _check_credit(wrong, message.credit, tasks_open)
    wrong.raise_if_any()


def _check_open(wrong: Violations, opened: task_service_pb2.SubscribeRequest.Open) -> None:
    _check_sources(wrong, "open.sources", opened.sources)
    _check_types(wrong, "open.types", opened.types)
    if opened.session_id:
        wrong.check_session_id("open.session_id", opened.session_id)
    wrong.check_range("open.session_ttr_ms", opened.session_ttr_ms, 0, limits.SESSION_TTR_MAX_MS)
    wrong.check_text("open.session_name", opened.session_name, limits.NAME_BYTES_MAX)
    wrong.check_not_negative("open.ttr_ms", opened.ttr_ms)


def _check_filter(wrong: Violations, wish: task_service_pb2.SubscribeRequest.Filter) -> None:
    _check_types(wrong, "filter.types", wish.types)
    if wish.none and (wish.types or wish.HasField("priority_bound")):
        wrong.add("filter.none", "excludes types and priority_bound")


def _check_credit(
    wrong: Violations, credit: task_service_pb2.SubscribeRequest.Credit, tasks_open: int
) -> None:
    wrong.check_not_negative("credit.tasks", credit.tasks)
    wrong.check_not_negative("credit.bytes", credit.bytes)
    total = credit.tasks + tasks_open
    if total > limits.CREDIT_TASKS_MAX:
        text = f"{total} would be open, more than {limits.CREDIT_TASKS_MAX}"
        limit = {"value": str(credit.tasks), "limit": f"..{limits.CREDIT_TASKS_MAX - tasks_open}"}
        wrong.add("credit.tasks", text, limit)
