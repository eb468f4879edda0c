"""Check takes against the limits of the contract."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft.v1 import task_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations


def check_take(request: task_service_pb2.TakeTasksRequest) -> None:
    """Check a take.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request.request_id)
    check_sources(violations, "sources", request.sources)
    check_types(violations, "types", request.types)
    if request.session_id:
        violations.check_session_id("session_id", request.session_id)
    violations.check_range("tasks_max", request.tasks_max, 0, limits.TAKE_TASKS_MAX)
    violations.check_not_negative("bytes_max", request.bytes_max)
    violations.check_not_negative("wait_ms", request.wait_ms)
    violations.check_not_negative("ttr_ms", request.ttr_ms)
    if request.HasField("task_id"):
        violations.check_positive("task_id", request.task_id)
        if len(request.sources) != 1 or "*" in request.sources[0].tube:
            violations.add("sources", "task_id needs exactly one tube")
        for field, given in (
            ("types", bool(request.types)),
            ("priority_bound", request.HasField("priority_bound")),
        ):
            if given:
                violations.add(field, "not allowed together with task_id")
    violations.raise_if_any()


def check_sources(
    violations: Violations, path: str, sources: Sequence[task_service_pb2.TakeSource]
) -> None:
    """Check the sources of a consumer."""
    violations.check_nonempty(path, sources, limits.TAKE_SOURCES_MAX)
    for place, source in enumerate(sources):
        violations.check_pattern(f"{path}[{place}].tube", source.tube)
        violations.check_range(
            f"{path}[{place}].weight", source.weight, 0, limits.SOURCE_WEIGHT_MAX
        )
    if len({source.weight > 0 for source in sources}) > 1:
        violations.add(path, "either all sources have a weight or none")


def check_types(violations: Violations, path: str, types: Sequence[str]) -> None:
    """Check the task types that a consumer accepts."""
    violations.check_count(path, types, limits.TAKE_TYPES_MAX)
    for place, name in enumerate(types):
        if not name:
            violations.add(f"{path}[{place}]", "an empty type")
        violations.check_text(f"{path}[{place}]", name, limits.TYPE_BYTES_MAX)
