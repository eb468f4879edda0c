"""Check requests that select tasks by id, key or filter against the limits of the contract."""

from __future__ import annotations

from typing import Final

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.settle_checks import (
    check_failure,
    check_task_update,
    check_transition_update,
)
from taskraft_service.command_codecs.selector import names_nothing
from taskraft_service.languages.comparisons import FilterMalformed
from taskraft_service.languages.filter_text import read_filter
from taskraft_service.queue.entities.instants import FOREVER_MS

ID_DESCENDING: Final = "id desc"
TAKE_ORDER: Final = "taking"
KICK_ORDER: Final = "kicking"
LIST_ORDERS: Final = ("", "id", ID_DESCENDING, TAKE_ORDER, KICK_ORDER)
"""Valid values of ``order_by``."""
_SWITCH_STATES: Final = (
    task_pb2.Task.READY,
    task_pb2.Task.DELAYED,
    task_pb2.Task.BURIED,
    task_pb2.Task.DONE,
    task_pb2.Task.ZOMBIE,
)


def check_selector(violations: Violations, selector: task_pb2.TaskSelector) -> None:
    """Check a selector, which must have exactly one of ids, keys and filter."""
    if names_nothing(selector):
        violations.add(
            "selector", "selects no task; the filter 'id > 0' selects all tasks of a tube"
        )
    ways = (bool(selector.ids), bool(selector.keys), bool(selector.filter))
    if sum(ways) > 1:
        violations.add("selector", "has more than one of ids, keys and filter")
    _check_items(violations, selector)
    check_filter(violations, "selector.filter", selector.filter)
    violations.check_range("selector.tasks_max", selector.tasks_max, 0, limits.SELECTOR_IDS_MAX)
    violations.check_not_negative("selector.after_id", selector.after_id)
    for field in ("tasks_max", "after_id"):
        if getattr(selector, field) and not selector.filter:
            violations.add(f"selector.{field}", "requires a filter")


def _check_items(violations: Violations, selector: task_pb2.TaskSelector) -> None:
    """Check each id and key."""
    violations.check_count("selector.ids", selector.ids, limits.SELECTOR_IDS_MAX)
    violations.check_count("selector.keys", selector.keys, limits.SELECTOR_IDS_MAX)
    for place, task_id in enumerate(selector.ids):
        violations.check_positive(f"selector.ids[{place}]", task_id)
    for place, key in enumerate(selector.keys):
        violations.check_unique_key(f"selector.keys[{place}]", key.parts)


def _check_named(violations: Violations, selector: task_pb2.TaskSelector) -> None:
    """Check a selector of a read, which must have ids or keys."""
    if selector.filter:
        violations.add("selector.filter", "not supported by this method; use ListTasks")
    else:
        check_selector(violations, selector)


def check_filter(violations: Violations, path: str, text: str) -> None:
    """Check that a filter parses; the metadata gets the position of the error."""
    try:
        read_filter(text)
    except FilterMalformed as error:
        violations.add(path, str(error), {"position": str(error.position)})


def check_get(request: pb.GetTasksRequest) -> None:
    """Check a read of selected tasks.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_tube("tube", request.tube)
    _check_named(violations, request.selector)
    violations.check_consistency(request.consistency)
    violations.raise_if_any()


def check_list(request: pb.ListTasksRequest) -> None:
    """Check a list, except whether its page token fits the list.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_tube("tube", request.tube)
    violations.check_page(request.page_size, request.page_token)
    violations.check_consistency(request.consistency)
    check_filter(violations, "filter", request.filter)
    if request.order_by not in LIST_ORDERS:
        given = request.order_by[:32]
        violations.add(
            "order_by", f'{given!r} is not "id", "id desc", "taking" or "kicking"', {"value": given}
        )
    violations.raise_if_any()


def check_count(request: pb.CountTasksRequest) -> None:
    """Check a count, except whether its page token fits the count.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_tube("tube", request.tube)
    violations.check_page(0, request.page_token)
    violations.check_consistency(request.consistency)
    check_filter(violations, "filter", request.filter)
    violations.raise_if_any()


def check_wait(request: pb.WaitTasksRequest) -> None:
    """Check a wait for tasks.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_tube("tube", request.tube)
    violations.check_not_negative("wait_ms", request.wait_ms)
    violations.check_choice("until", request.until, type(request).Until.values())
    _check_named(violations, request.selector)
    violations.raise_if_any()


def check_kick(request: pb.KickTasksRequest, payload_bytes_max: int) -> Violations:
    """Return the violations of a kick."""
    violations = _checked_head(request)
    violations.check_not_negative("count", request.count)
    violations.check_not_negative("delay_ms", request.delay_ms)
    if request.HasField("update"):
        check_transition_update(violations, "update", request.update, payload_bytes_max)
    if not names_nothing(request.selector):
        check_selector(violations, request.selector)
        if request.count:
            violations.add("count", "not allowed together with a selector")
    return violations


def check_bury(request: pb.BuryTasksRequest) -> Violations:
    """Return the violations of a bury request."""
    violations = _checked_head(request)
    check_failure(violations, "failure", request.failure)
    check_selector(violations, request.selector)
    return violations


def check_delete(request: pb.DeleteTasksRequest | pb.CancelTasksRequest) -> Violations:
    """Return the violations of a deletion or a cancellation."""
    violations = _checked_head(request)
    check_selector(violations, request.selector)
    return violations


def check_update(request: pb.UpdateTasksRequest, payload_bytes_max: int) -> Violations:
    """Return the violations of a change of tasks."""
    violations = _checked_head(request)
    if request.update == task_pb2.TaskUpdate():
        violations.add("update", "contains no change")
    check_task_update(violations, "update", request.update, payload_bytes_max)
    check_selector(violations, request.selector)
    return violations


def check_snatch(request: pb.SnatchTasksRequest | pb.RestartTasksRequest) -> Violations:
    """Return the violations of a snatch or a restart."""
    violations = _checked_head(request)
    violations.check_not_negative("delay_ms", request.delay_ms)
    check_selector(violations, request.selector)
    return violations


def check_switch(request: pb.SwitchTasksRequest) -> Violations:
    """Return the violations of a switch; a duration goes with DELAYED and ZOMBIE only."""
    violations = _checked_head(request)
    state = request.state
    if state not in _SWITCH_STATES:
        names = ", ".join(task_pb2.Task.State.Name(one) for one in _SWITCH_STATES)
        violations.add("state", f"{state} is not one of {names}", {"value": str(state)})
    violations.check_not_negative("duration_ms", request.duration_ms)
    is_timed = state in (task_pb2.Task.DELAYED, task_pb2.Task.ZOMBIE)
    if is_timed and request.duration_ms == 0:
        violations.add("duration_ms", f"required for {task_pb2.Task.State.Name(state)}")
    elif state == task_pb2.Task.ZOMBIE and request.duration_ms >= FOREVER_MS:
        text = f"{request.duration_ms} is infinite; a ZOMBIE needs a finite retention period"
        violations.add("duration_ms", text)
    elif request.duration_ms and not is_timed:
        violations.add("duration_ms", "allowed only for DELAYED and ZOMBIE")
    check_selector(violations, request.selector)
    return violations


def check_move(request: pb.MoveTasksRequest, payload_bytes_max: int) -> Violations:
    """Return the violations of a move, which must set exactly one of move_to and to_origin."""
    violations = _checked_head(request)
    if request.move_to:
        violations.check_tube("move_to", request.move_to)
        if request.move_to == request.tube:
            violations.add("move_to", "is the tube that already holds the tasks")
        if request.to_origin:
            violations.add("to_origin", "not allowed together with move_to")
    elif not request.to_origin:
        violations.add("move_to", "either move_to or to_origin is required")
    if request.HasField("delay_ms"):
        violations.check_not_negative("delay_ms", request.delay_ms)
    violations.check_choice("position", request.position, task_pb2.TaskSpec.Position.values())
    if request.HasField("update"):
        check_transition_update(violations, "update", request.update, payload_bytes_max)
    check_selector(violations, request.selector)
    return violations


def _checked_head(
    request: (
        pb.KickTasksRequest
        | pb.BuryTasksRequest
        | pb.DeleteTasksRequest
        | pb.UpdateTasksRequest
        | pb.SnatchTasksRequest
        | pb.RestartTasksRequest
        | pb.SwitchTasksRequest
        | pb.MoveTasksRequest
        | pb.CancelTasksRequest
    ),
) -> Violations:
    """Check the fields that all changes of selected tasks have."""
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_tube("tube", request.tube)
    return violations
