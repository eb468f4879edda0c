"""Check the requests of GroupService against the limits of the contract."""

from __future__ import annotations

from taskraft.v1 import group_service_pb2 as pb
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.put_checks import check_stored_spec


def check_create_group(request: pb.CreateGroupRequest) -> None:
    """Refuse a group that breaks a limit."""
    wrong = Violations()
    wrong.check_request_id(request.request_id)
    wrong.check_name("group.name", request.group.name)
    for field in ("end_task", "abort_task"):
        if request.group.HasField(field):
            task = getattr(request.group, field)
            wrong.check_tube(f"group.{field}.tube", task.tube)
            check_stored_spec(wrong, f"group.{field}.spec", task.spec)
            if task.spec.group and task.spec.group == request.group.name:
                wrong.add(f"group.{field}.spec.group", "is the group that has ended by then")
    if request.group.only_if_processed and not request.group.HasField("end_task"):
        wrong.add("group.only_if_processed", "given without end_task")
    wrong.raise_if_any()


def check_get_group(request: pb.GetGroupRequest) -> None:
    """Refuse a read that names no group, or that no node can promise."""
    wrong = Violations()
    wrong.check_name("name", request.name)
    wrong.check_consistency(request.consistency)
    wrong.raise_if_any()
