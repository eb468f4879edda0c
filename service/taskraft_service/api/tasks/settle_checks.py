"""Check settlements and changes of tasks against the limits of the contract."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tubes.checks import POSITIONS


def check_settle(
    request: task_service_pb2.SettleTasksRequest, payload_bytes_max: int
) -> Violations:
    """Return the violations of a settle request."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    check_settlements(violations, request.settlements, payload_bytes_max)
    return violations


def check_settlements(
    violations: Violations,
    settlements: Sequence[task_service_pb2.Settlement],
    payload_bytes_max: int,
) -> None:
    """Check all settlements of one request or stream message."""
    if not settlements:
        violations.add("settlements", "empty")
    tokens = 0
    for place, settlement in enumerate(settlements):
        path = f"settlements[{place}]"
        tokens += len(settlement.tokens)
        if not settlement.tokens:
            violations.add(f"{path}.tokens", "empty")
        elif (least := min(settlement.tokens)) < 1:
            violations.check_positive(f"{path}.tokens", least)
        _check_action(violations, path, settlement, payload_bytes_max)
    if tokens > limits.PUT_TASKS_MAX:
        violations.add("settlements", f"{tokens} tokens, more than {limits.PUT_TASKS_MAX}")


def _check_action(
    violations: Violations,
    path: str,
    settlement: task_service_pb2.Settlement,
    payload_bytes_max: int,
) -> None:
    match settlement.WhichOneof("action"):
        case "ack":
            _check_ack(violations, f"{path}.ack", settlement.ack, payload_bytes_max)
        case "release":
            _check_release(violations, f"{path}.release", settlement.release, payload_bytes_max)
        case "bury":
            bury = settlement.bury
            check_failure(violations, f"{path}.bury.failure", bury.failure)
            if bury.HasField("update"):
                check_transition_update(
                    violations, f"{path}.bury.update", bury.update, payload_bytes_max
                )
        case "reject":
            check_failure(violations, f"{path}.reject.failure", settlement.reject.failure)
        case "touch":
            _check_touch(violations, f"{path}.touch", settlement.touch)
        case _:
            violations.add(f"{path}.action", "missing")


def _check_ack(
    violations: Violations,
    path: str,
    ack: task_service_pb2.Settlement.Ack,
    payload_bytes_max: int,
) -> None:
    if not ack.ByteSize():
        # Most acknowledgements carry no result.
        return
    violations.check_size(f"{path}.result", len(ack.result), limits.RESULT_BYTES_MAX)
    content_type = ack.result_content_type
    violations.check_text(
        f"{path}.result_content_type", content_type, limits.CONTENT_TYPE_BYTES_MAX
    )
    violations.check_not_negative(f"{path}.retain_ms", ack.retain_ms)
    violations.check_size(f"{path}.payload", len(ack.payload), payload_bytes_max)
    known = violations.check_choice(f"{path}.keep", ack.keep, type(ack).Keep.values())
    if known and ack.keep == type(ack).REMOVE and ack.HasField("retain_ms"):
        violations.add(f"{path}.retain_ms", "not allowed for a task that is not kept")


def _check_release(
    violations: Violations,
    path: str,
    release: task_service_pb2.Settlement.Release,
    payload_bytes_max: int,
) -> None:
    violations.check_limit(f"{path}.ttl_ms", release, "ttl_ms")
    known = violations.check_choice(
        f"{path}.ttl_policy", release.ttl_policy, type(release).TtlPolicy.values()
    )
    if known and release.HasField("ttl_ms") and release.ttl_policy != type(release).RESET:
        violations.add(f"{path}.ttl_ms", "requires the ttl_policy RESET")
    violations.check_choice(f"{path}.position", release.position, POSITIONS)
    if release.move_to:
        violations.check_tube(f"{path}.move_to", release.move_to)
    if release.uncounted and release.failure.fatal:
        violations.add(f"{path}.failure.fatal", "not allowed for an attempt that does not count")
    if release.HasField("update"):
        check_transition_update(violations, f"{path}.update", release.update, payload_bytes_max)
    check_failure(violations, f"{path}.failure", release.failure)


def _check_touch(
    violations: Violations, path: str, touch: task_service_pb2.Settlement.Touch
) -> None:
    violations.check_not_negative(f"{path}.increment_ms", touch.increment_ms)
    if touch.restart and touch.increment_ms > 0:
        violations.add(f"{path}.increment_ms", "not allowed together with restart")
    progress = touch.progress
    violations.check_range(f"{path}.progress.basis_points", progress.basis_points, 0, 10_000)
    violations.check_text(f"{path}.progress.note", progress.note, limits.PROGRESS_NOTE_BYTES_MAX)


def check_failure(violations: Violations, path: str, failure: task_pb2.Failure) -> None:
    """Check the length of the texts of a failure."""
    violations.check_text(f"{path}.type", failure.type, limits.FAILURE_TYPE_BYTES_MAX)
    violations.check_text(f"{path}.message", failure.message, limits.FAILURE_MESSAGE_BYTES_MAX)


def check_task_update(
    violations: Violations, path: str, update: task_pb2.TaskUpdate, payload_bytes_max: int
) -> None:
    """Check a change of tasks."""
    violations.check_size(f"{path}.payload", len(update.payload), payload_bytes_max)
    violations.check_text(
        f"{path}.content_type", update.content_type, limits.CONTENT_TYPE_BYTES_MAX
    )
    violations.check_not_negative(f"{path}.delay_ms", update.delay_ms)
    for name in ("ttl_ms", "ttr_ms"):
        violations.check_limit(f"{path}.{name}", update, name)
    headers_bytes = 0
    for name, content in update.headers_set.items():
        violations.check_text(
            f"{path}.headers_set[{name[:32]}]", name, limits.HEADER_NAME_BYTES_MAX
        )
        if not name:
            violations.add(f"{path}.headers_set", "a header has an empty name")
        headers_bytes += len(name.encode()) + len(content)
    violations.check_size(f"{path}.headers_set", headers_bytes, limits.HEADERS_BYTES_MAX)
    violations.check_count(f"{path}.headers_set", update.headers_set, limits.HEADERS_MAX)
    violations.check_count(f"{path}.headers_remove", update.headers_remove, limits.HEADERS_MAX)
    for place, name in enumerate(update.headers_remove):
        violations.check_text(f"{path}.headers_remove[{place}]", name, limits.HEADER_NAME_BYTES_MAX)
        if not name:
            violations.add(f"{path}.headers_remove[{place}]", "a header has an empty name")
    for name in sorted(set(update.headers_set) & set(update.headers_remove)):
        violations.add(f"{path}.headers_remove", f"{name[:32]} is also in headers_set")


def check_transition_update(
    violations: Violations, path: str, update: task_pb2.TaskUpdate, payload_bytes_max: int
) -> None:
    """Check a change that is part of a settlement or a kick, which sets the delay itself."""
    check_task_update(violations, path, update, payload_bytes_max)
    if update.HasField("delay_ms"):
        violations.add(f"{path}.delay_ms", "not allowed here; the transition sets the delay")


def adds_content(update: task_pb2.TaskUpdate) -> bool:
    """Return whether a change may make tasks larger."""
    return bool(update.payload or update.headers_set)
