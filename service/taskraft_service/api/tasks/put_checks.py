"""Check puts and the tasks in them against the limits of the contract.

Conditions that depend on the state, such as whether the tube exists, are left to the queue.
"""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import TUBE_NAME, Violations
from taskraft_service.api.tubes.checks import POSITIONS, check_retry_policy
from taskraft_service.command_codecs.put import specs_of
from taskraft_service.turns import next_turn

ITEMS_PER_TURN: Final = 200
"""Number of tasks that are checked before other work runs; with 32 headers each, about 5 ms."""
_STATES: Final = frozenset(task_pb2.Task.State.values())
_Spec = task_pb2.TaskSpec
_CONFLICTS: Final = frozenset(_Spec.OnConflict.values())
_DEPENDENCY_FAILURES: Final = frozenset(_Spec.OnDependencyFailure.values())
_CHANGING_POLICIES: Final = {
    _Spec.RESTART_IF_FINISHED: "RESTART_IF_FINISHED",
    _Spec.REPLACE_IF_WAITING: "REPLACE_IF_WAITING",
}
"""Conflict policies that change an existing task, which then cannot get dependencies."""


def check_put(
    request: task_service_pb2.PutTasksRequest,
    raw: bytes,
    payload_bytes_max: int,
    items_before: int = 0,
    items_max: int = limits.PUT_TASKS_MAX,
) -> Violations:
    """Return the violations of a put.

    Args:
        request: the put.
        raw: the put as received.
        payload_bytes_max: the configured maximum size of a payload.
        items_before: number of items in earlier puts of the same batch.
        items_max: maximum number of tasks to check; see ``check_later_items``.
    """
    violations = Violations()
    # Most puts are valid; the conditions here save most of the calls on the path of every put.
    if request.request_id or request.client_id:
        violations.check_request_id(request.request_id, request.client_id)
    if TUBE_NAME.fullmatch(request.tube) is None:
        violations.check_tube("tube", request.tube)
    plain_bytes = specs_of(raw).plain_bytes
    if not 1 <= len(plain_bytes) <= limits.PUT_TASKS_MAX:
        violations.check_nonempty("tasks", plain_bytes, limits.PUT_TASKS_MAX)
    if request.room_wait_ms or request.outcome_wait_ms:
        violations.check_not_negative("room_wait_ms", request.room_wait_ms)
        violations.check_not_negative("outcome_wait_ms", request.outcome_wait_ms)
    for item, payload_bytes in enumerate(plain_bytes[:items_max]):
        if payload_bytes is None:
            _check_item(violations, request, item, payload_bytes_max, items_before)
        elif payload_bytes > payload_bytes_max:
            violations.check_size(f"tasks[{item}].payload", payload_bytes, payload_bytes_max)
    return violations


async def check_later_items(
    violations: Violations,
    request: task_service_pb2.PutTasksRequest,
    raw: bytes,
    payload_bytes_max: int,
) -> None:
    """Check the tasks after the first ``ITEMS_PER_TURN``; other work runs between two parts."""
    plain_bytes = specs_of(raw).plain_bytes
    for item in range(ITEMS_PER_TURN, len(plain_bytes)):
        if item % ITEMS_PER_TURN == 0:
            await next_turn()
        payload_bytes = plain_bytes[item]
        if payload_bytes is None:
            _check_item(violations, request, item, payload_bytes_max)
        elif payload_bytes > payload_bytes_max:
            violations.check_size(f"tasks[{item}].payload", payload_bytes, payload_bytes_max)


def _check_item(
    violations: Violations,
    request: task_service_pb2.PutTasksRequest,
    item: int,
    payload_bytes_max: int,
    items_before: int = 0,
) -> None:
    """Check a task with more fields than a payload."""
    spec = request.tasks[item]
    check_spec(violations, f"tasks[{item}]", spec, payload_bytes_max)
    _check_dependencies(violations, f"tasks[{item}]", spec, items_before + item)


def check_spec(
    violations: Violations, path: str, spec: task_pb2.TaskSpec, payload_bytes_max: int
) -> None:
    """Check one task of a put."""
    violations.check_size(f"{path}.payload", len(spec.payload), payload_bytes_max)
    violations.check_text(f"{path}.content_type", spec.content_type, limits.CONTENT_TYPE_BYTES_MAX)
    violations.check_text(f"{path}.type", spec.type, limits.TYPE_BYTES_MAX)
    violations.check_text(f"{path}.subqueue", spec.subqueue, limits.SUBQUEUE_BYTES_MAX)
    violations.check_limit(f"{path}.ttl_ms", spec, "ttl_ms")
    violations.check_limit(f"{path}.ttr_ms", spec, "ttr_ms")
    violations.check_not_negative(f"{path}.visible_at_ms", spec.visible_at_ms)
    violations.check_choice(f"{path}.position", spec.position, POSITIONS)
    if spec.unique_key:
        violations.check_unique_key(f"{path}.unique_key", spec.unique_key)
    known = violations.check_choice(f"{path}.on_conflict", spec.on_conflict, _CONFLICTS)
    if known and spec.on_conflict and not spec.unique_key:
        violations.add(f"{path}.on_conflict", "requires unique_key")
    _check_unique_scope(violations, path, spec)
    violations.check_text(f"{path}.group", spec.group, limits.NAME_BYTES_MAX)
    if spec.HasField("retry"):
        check_retry_policy(violations, f"{path}.retry", spec.retry)
    if spec.headers:
        _check_headers(violations, f"{path}.headers", spec)


def _check_unique_scope(violations: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    """Check the scope of a unique key: states and time."""
    for place, state in enumerate(spec.unique_states):
        if not state or state not in _STATES:
            violations.add(f"{path}.unique_states[{place}]", f"{state} is not a task state")
    violations.check_count(f"{path}.unique_states", spec.unique_states, len(_STATES))
    if spec.HasField("unique_ms"):
        violations.check_positive(f"{path}.unique_ms", spec.unique_ms)
    if not spec.unique_key:
        if spec.unique_states:
            violations.add(f"{path}.unique_states", "requires unique_key")
        if spec.HasField("unique_ms"):
            violations.add(f"{path}.unique_ms", "requires unique_key")


def check_stored_spec(violations: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    """Check a task that is stored with a group or a schedule and put later."""
    check_spec(violations, path, spec, limits.STORED_PAYLOAD_BYTES_MAX)
    _check_no_dependencies(violations, path, spec)


def _check_headers(violations: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    headers = spec.headers
    violations.check_count(path, headers, limits.HEADERS_MAX)
    sizes = [len(name.encode()) for name in headers]
    if min(sizes) < 1 or max(sizes) > limits.HEADER_NAME_BYTES_MAX:
        for name in headers:
            violations.check_text(f"{path}[{name[:32]}]", name, limits.HEADER_NAME_BYTES_MAX)
            if not name:
                violations.add(path, "a header has an empty name")
    total = sum(sizes) + sum(map(len, headers.values()))
    violations.check_size(path, total, limits.HEADERS_BYTES_MAX)


def _check_dependencies(
    violations: Violations, path: str, spec: task_pb2.TaskSpec, items_before: int
) -> None:
    """Check the dependencies of an item.

    An item can depend only on earlier items, so there are no cycles. ``items_before`` includes the
    items of earlier puts of the same batch.
    """
    count = len(spec.depends_on)
    known = violations.check_choice(
        f"{path}.on_dependency_failure",
        spec.on_dependency_failure,
        _DEPENDENCY_FAILURES,
    )
    if known and spec.on_dependency_failure and not count:
        violations.add(f"{path}.on_dependency_failure", "requires depends_on")
    if not count:
        return
    if count > limits.DEPENDENCIES_MAX:
        violations.check_count(f"{path}.depends_on", spec.depends_on, limits.DEPENDENCIES_MAX)
        return
    if spec.on_conflict in _CHANGING_POLICIES:
        violations.add(
            f"{path}.depends_on",
            f"not allowed together with {_CHANGING_POLICIES[spec.on_conflict]}",
        )
    seen: dict[bytes, int] = {}
    for place, one in enumerate(spec.depends_on):
        field = f"{path}.depends_on[{place}]"
        _check_dependency(violations, field, one, items_before)
        first = seen.setdefault(one.SerializeToString(deterministic=True), place)
        if first != place and one.WhichOneof("on") is not None:
            violations.add(field, f"a duplicate of depends_on[{first}]")


def _check_dependency(
    violations: Violations, field: str, one: task_pb2.Dependency, items_before: int
) -> None:
    match one.WhichOneof("on"):
        case "task":
            violations.check_tube(f"{field}.task.tube", one.task.tube)
            if one.task.id < 1:
                violations.add(f"{field}.task.id", f"{one.task.id} is not positive")
        case "item":
            if not 0 <= one.item < items_before:
                text = f"item {one.item} is not before this item, which is item {items_before}"
                violations.add(f"{field}.item", text, {"value": str(one.item)})
        case _:
            violations.add(field, "missing")


def _check_no_dependencies(violations: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    """Check that a stored task has no dependencies, which may be deleted before the task is put."""
    if spec.depends_on:
        violations.add(f"{path}.depends_on", "not allowed for a task that is put later")
    if spec.on_dependency_failure:
        violations.add(f"{path}.on_dependency_failure", "not allowed for a task that is put later")
