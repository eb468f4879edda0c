"""Check what a producer says a task depends on, as far as no state is needed for that."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations

_Spec = task_pb2.TaskSpec
CHANGING: Final = {
    _Spec.RESTART_IF_FINISHED: "RESTART_IF_FINISHED",
    _Spec.REPLACE_IF_WAITING: "REPLACE_IF_WAITING",
}
"""Conflict policies that change a task which is there, and cannot make it wait."""


def check_dependencies(
    wrong: Violations, path: str, spec: task_pb2.TaskSpec, items_before: int
) -> None:
    """Check the dependencies of an item; items before it are also those of a batch's earlier puts.

    Since an item depends on items before it only, there are no cycles.
    """
    count = len(spec.depends_on)
    known = wrong.check_choice(
        f"{path}.on_dependency_failure",
        spec.on_dependency_failure,
        _Spec.OnDependencyFailure.values(),
    )
    if known and spec.on_dependency_failure and not count:
        wrong.add(f"{path}.on_dependency_failure", "given without depends_on")
    if not count:
        return
    if count > limits.DEPENDENCIES_MAX:
        wrong.check_range(f"{path}.depends_on", count, 0, limits.DEPENDENCIES_MAX)
        return
    if spec.on_conflict in CHANGING:
        wrong.add(f"{path}.depends_on", f"not together with {CHANGING[spec.on_conflict]}")
    seen: dict[bytes, int] = {}
    for place, one in enumerate(spec.depends_on):
        field = f"{path}.depends_on[{place}]"
        _check_one(wrong, field, one, items_before)
        first = seen.setdefault(one.SerializeToString(deterministic=True), place)
        if first != place and one.WhichOneof("on") is not None:
            wrong.add(field, f"the same as depends_on[{first}]")


def _check_one(wrong: Violations, field: str, one: task_pb2.Dependency, items_before: int) -> None:
    match one.WhichOneof("on"):
        case "task":
            wrong.check_tube(f"{field}.task.tube", one.task.tube)
            if one.task.id < 1:
                wrong.add(f"{field}.task.id", f"{one.task.id} is not positive")
        case "item":
            if not 0 <= one.item < items_before:
                text = f"{one.item} is not an item before this one, which is item {items_before}"
                wrong.add(f"{field}.item", text, {"value": str(one.item)})
        case _:
            wrong.add(field, "missing")


def refuse_dependencies(wrong: Violations, path: str, spec: task_pb2.TaskSpec) -> None:
    """Refuse dependencies of a task that is put later: what it names may be gone then."""
    if spec.depends_on:
        wrong.add(f"{path}.depends_on", "means nothing for a task that is put later")
    if spec.on_dependency_failure:
        wrong.add(f"{path}.on_dependency_failure", "means nothing for a task that is put later")
