"""Check the requests that name tasks, by id, key or filter, against the limits of the contract."""

from __future__ import annotations

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.listing import ORDERS
from taskraft_service.api.tasks.settle_checks import check_failure
from taskraft_service.api.tasks.update_checks import check_transition_update
from taskraft_service.api.tasks.update_checks import check_update as check_task_update
from taskraft_service.command_codecs.selector import names_nothing
from taskraft_service.languages.filter_text import read_filter
from taskraft_service.languages.malformed import FilterMalformed
from taskraft_service.queue.entities.instants import FOREVER_MS

_SWITCH_STATES = (
    task_pb2.Task.READY,
    task_pb2.Task.DELAYED,
    task_pb2.Task.BURIED,
    task_pb2.Task.DONE,
    task_pb2.Task.ZOMBIE,
)


def check_selector(wrong: Violations, selector: task_pb2.TaskSelector, items_max: int) -> None:
    """Check a selector that must name something, in one of the three ways."""
    if names_nothing(selector):
        wrong.add("selector", "names nothing; all tasks of a tube are: id > 0")
    ways = (bool(selector.ids), bool(selector.keys), bool(selector.filter))
    if sum(ways) > 1:
        wrong.add("selector", "ids, keys and filter exclude each other")
    _check_items(wrong, selector, items_max)
    check_filter(wrong, "selector.filter", selector.filter)
    wrong.check_range("selector.tasks_max", selector.tasks_max, 0, limits.DELETE_IDS_MAX)
    wrong.check_not_negative("selector.after_id", selector.after_id)
    for field in ("tasks_max", "after_id"):
        if getattr(selector, field) and not selector.filter:
            wrong.add(f"selector.{field}", "goes with a filter only")


def _check_items(wrong: Violations, selector: task_pb2.TaskSelector, items_max: int) -> None:
    """Check ids and keys one by one."""
    wrong.check_count("selector.ids", selector.ids, items_max)
    wrong.check_count("selector.keys", selector.keys, items_max)
    for place, task_id in enumerate(selector.ids):
        wrong.check_positive(f"selector.ids[{place}]", task_id)
    for place, key in enumerate(selector.keys):
        wrong.check_unique_key(f"selector.keys[{place}]", key.parts)


def _check_named(wrong: Violations, selector: task_pb2.TaskSelector) -> None:
    """Check a selector of a read, which answers item by item: by ids or keys."""
    if selector.filter:
        wrong.add("selector.filter", "not here; for filters there is ListTasks")
    else:
        check_selector(wrong, selector, limits.SELECTOR_IDS_MAX)


def check_filter(wrong: Violations, path: str, text: str) -> None:
    """Check that a filter parses; the position of what is wrong goes into the metadata."""
    try:
        read_filter(text)
    except FilterMalformed as error:
        wrong.add(path, str(error), {"position": str(error.position)})


def check_get(request: pb.GetTasksRequest) -> None:
    """Refuse a read of chosen tasks that breaks a limit."""
    wrong = Violations()
    wrong.check_tube("tube", request.tube)
    _check_named(wrong, request.selector)
    wrong.check_consistency(request.consistency)
    wrong.raise_if_any()


def check_list(request: pb.ListTasksRequest) -> None:
    """Refuse a list that breaks a limit; its page token is read elsewhere."""
    wrong = Violations()
    wrong.check_tube("tube", request.tube)
    wrong.check_page(request.page_size, request.page_token)
    wrong.check_consistency(request.consistency)
    check_filter(wrong, "filter", request.filter)
    if request.order_by not in ORDERS:
        given = request.order_by[:32]
        wrong.add("order_by", f'{given!r} is not "id", "id desc" or "taking"', {"value": given})
    wrong.raise_if_any()


def check_wait(request: pb.WaitTasksRequest) -> None:
    """Refuse a wait that breaks a limit."""
    wrong = Violations()
    wrong.check_tube("tube", request.tube)
    wrong.check_not_negative("wait_ms", request.wait_ms)
    wrong.check_choice("until", request.until, type(request).Until.values())
    _check_named(wrong, request.selector)
    wrong.raise_if_any()


def kick_violations(request: pb.KickTasksRequest, payload_bytes_max: int) -> Violations:
    """Return what of a kick breaks a limit."""
    wrong = _begun(request)
    wrong.check_not_negative("count", request.count)
    wrong.check_not_negative("delay_ms", request.delay_ms)
    if request.HasField("update"):
        check_transition_update(wrong, "update", request.update, payload_bytes_max)
    if not names_nothing(request.selector):
        check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
        if request.count:
            wrong.add("count", "given together with a selector")
    return wrong


def bury_violations(request: pb.BuryTasksRequest) -> Violations:
    """Return what of a burial breaks a limit."""
    wrong = _begun(request)
    check_failure(wrong, "failure", request.failure)
    check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
    return wrong


def delete_violations(request: pb.DeleteTasksRequest | pb.CancelTasksRequest) -> Violations:
    """Return what of a deletion, or a cancellation, breaks a limit."""
    wrong = _begun(request)
    check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
    return wrong


def update_violations(request: pb.UpdateTasksRequest, payload_bytes_max: int) -> Violations:
    """Return what of a change of tasks breaks a limit."""
    wrong = _begun(request)
    if request.update == task_pb2.TaskUpdate():
        wrong.add("update", "changes nothing")
    check_task_update(wrong, "update", request.update, payload_bytes_max)
    check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
    return wrong


def snatch_violations(request: pb.SnatchTasksRequest | pb.RestartTasksRequest) -> Violations:
    """Return what of a snatch, or a restart, breaks a limit."""
    wrong = _begun(request)
    wrong.check_not_negative("delay_ms", request.delay_ms)
    check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
    return wrong


def switch_violations(request: pb.SwitchTasksRequest) -> Violations:
    """Return what of a switch breaks a limit: the time goes with the states that have one."""
    wrong = _begun(request)
    state = request.state
    if state not in _SWITCH_STATES:
        names = ", ".join(task_pb2.Task.State.Name(one) for one in _SWITCH_STATES)
        wrong.add("state", f"{state} is not one of {names}", {"value": str(state)})
    wrong.check_not_negative("duration_ms", request.duration_ms)
    is_timed = state in (task_pb2.Task.DELAYED, task_pb2.Task.ZOMBIE)
    if is_timed and request.duration_ms == 0:
        wrong.add("duration_ms", f"needed for {task_pb2.Task.State.Name(state)}")
    elif state == task_pb2.Task.ZOMBIE and request.duration_ms >= FOREVER_MS:
        text = f"{request.duration_ms} is for ever, and a ZOMBIE is kept for a period"
        wrong.add("duration_ms", text)
    elif request.duration_ms and not is_timed:
        wrong.add("duration_ms", "goes with DELAYED and ZOMBIE only")
    check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
    return wrong


def move_violations(request: pb.MoveTasksRequest, payload_bytes_max: int) -> Violations:
    """Return what of a move breaks a limit: it goes to one other tube, or back to the origins."""
    wrong = _begun(request)
    if request.move_to:
        wrong.check_tube("move_to", request.move_to)
        if request.move_to == request.tube:
            wrong.add("move_to", "names the tube where the tasks are")
        if request.to_origin:
            wrong.add("to_origin", "given together with move_to")
    elif not request.to_origin:
        wrong.add("move_to", "needed, or to_origin")
    if request.HasField("delay_ms"):
        wrong.check_not_negative("delay_ms", request.delay_ms)
    wrong.check_choice("position", request.position, task_pb2.TaskSpec.Position.values())
    if request.HasField("update"):
        check_transition_update(wrong, "update", request.update, payload_bytes_max)
    check_selector(wrong, request.selector, limits.DELETE_IDS_MAX)
    return wrong


def _begun(
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
    """Check what all changes of chosen tasks have."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_tube("tube", request.tube)
    return wrong
