"""Check settlements against the limits of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.update_checks import check_transition_update

POSITIONS: Final = frozenset(task_pb2.TaskSpec.Position.values())


def settle_violations(
    request: task_service_pb2.SettleTasksRequest, payload_bytes_max: int
) -> Violations:
    """Return what of a settle breaks a limit."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    check_settlements(wrong, request.settlements, payload_bytes_max)
    return wrong


def check_settlements(
    wrong: Violations,
    settlements: Sequence[task_service_pb2.Settlement],
    payload_bytes_max: int,
) -> None:
    """Check the settlements of one message together."""
    if not settlements:
        wrong.add("settlements", "empty")
    tokens = 0
    for place, settlement in enumerate(settlements):
        path = f"settlements[{place}]"
        tokens += len(settlement.tokens)
        if not settlement.tokens:
            wrong.add(f"{path}.tokens", "empty")
        else:
            wrong.check_positive(f"{path}.tokens", min(settlement.tokens))
        _check_action(wrong, path, settlement, payload_bytes_max)
    if tokens > limits.PUT_TASKS_MAX:
        wrong.add("settlements", f"{tokens} tokens, more than {limits.PUT_TASKS_MAX}")


def _check_action(
    wrong: Violations,
    path: str,
    settlement: task_service_pb2.Settlement,
    payload_bytes_max: int,
) -> None:
    match settlement.WhichOneof("action"):
        case "ack":
            _check_ack(wrong, f"{path}.ack", settlement.ack, payload_bytes_max)
        case "release":
            _check_release(wrong, f"{path}.release", settlement.release, payload_bytes_max)
        case "bury":
            bury = settlement.bury
            check_failure(wrong, f"{path}.bury.failure", bury.failure)
            if bury.HasField("update"):
                check_transition_update(
                    wrong, f"{path}.bury.update", bury.update, payload_bytes_max
                )
        case "reject":
            check_failure(wrong, f"{path}.reject.failure", settlement.reject.failure)
        case "touch":
            _check_touch(wrong, f"{path}.touch", settlement.touch)
        case _:
            wrong.add(f"{path}.action", "missing")


def _check_ack(
    wrong: Violations,
    path: str,
    ack: task_service_pb2.Settlement.Ack,
    payload_bytes_max: int,
) -> None:
    if not ack.ByteSize():
        # Most tasks end without a word.
        return
    wrong.check_size(f"{path}.result", len(ack.result), limits.RESULT_BYTES_MAX)
    content_type = ack.result_content_type
    wrong.check_text(f"{path}.result_content_type", content_type, limits.CONTENT_TYPE_BYTES_MAX)
    wrong.check_not_negative(f"{path}.retain_ms", ack.retain_ms)
    wrong.check_size(f"{path}.payload", len(ack.payload), payload_bytes_max)
    known = wrong.check_choice(f"{path}.keep", ack.keep, type(ack).Keep.values())
    if known and ack.keep == type(ack).REMOVE:
        for name in ("retain_ms", "payload"):
            if ack.HasField(name):
                wrong.add(f"{path}.{name}", "means nothing for a task that is not kept")


def _check_release(
    wrong: Violations,
    path: str,
    release: task_service_pb2.Settlement.Release,
    payload_bytes_max: int,
) -> None:
    wrong.check_not_negative(f"{path}.ttl_ms", release.ttl_ms)
    known = wrong.check_choice(
        f"{path}.ttl_policy", release.ttl_policy, type(release).TtlPolicy.values()
    )
    if known and release.HasField("ttl_ms") and release.ttl_policy != type(release).RESET:
        wrong.add(f"{path}.ttl_ms", "means nothing without the ttl_policy RESET")
    wrong.check_choice(f"{path}.position", release.position, POSITIONS)
    if release.move_to:
        wrong.check_tube(f"{path}.move_to", release.move_to)
    if release.uncounted and release.failure.fatal:
        wrong.add(f"{path}.failure.fatal", "means nothing for an attempt that is not counted")
    if release.HasField("update"):
        check_transition_update(wrong, f"{path}.update", release.update, payload_bytes_max)
    check_failure(wrong, f"{path}.failure", release.failure)


def _check_touch(wrong: Violations, path: str, touch: task_service_pb2.Settlement.Touch) -> None:
    wrong.check_not_negative(f"{path}.increment_ms", touch.increment_ms)
    if touch.restart and touch.increment_ms > 0:
        wrong.add(f"{path}.increment_ms", "excludes restart: a lease is prolonged in one way")
    progress = touch.progress
    wrong.check_range(f"{path}.progress.basis_points", progress.basis_points, 0, 10_000)
    wrong.check_text(f"{path}.progress.note", progress.note, limits.PROGRESS_NOTE_BYTES_MAX)


def check_failure(wrong: Violations, path: str, failure: task_pb2.Failure) -> None:
    """Check the texts of a failure."""
    wrong.check_text(f"{path}.type", failure.type, limits.FAILURE_TYPE_BYTES_MAX)
    wrong.check_text(f"{path}.message", failure.message, limits.FAILURE_MESSAGE_BYTES_MAX)
