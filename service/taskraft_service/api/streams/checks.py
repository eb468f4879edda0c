"""Check the messages of a Subscribe stream against the limits of the contract."""

from __future__ import annotations

from taskraft.v1 import task_service_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.tasks.take_checks import check_sources, check_types


def check_stream_message(
    message: task_service_pb2.SubscribeRequest, tasks_open: int, *, is_first: bool
) -> None:
    """Check a message of a stream, except its settlements.

    Args:
        message: the message.
        tasks_open: the unused credit in tasks before the message.
        is_first: whether it is the first message, which must open the subscription.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    if message.HasField("open") is not is_first:
        violations.add(
            "open",
            "missing in the first message" if is_first else "allowed only in the first message",
        )
    elif is_first:
        _check_open(violations, message.open)
    if message.HasField("filter"):
        _check_filter(violations, message.filter)
    if message.HasField("credit"):
        _check_credit(violations, message.credit, tasks_open)
    violations.raise_if_any()


def _check_open(violations: Violations, opened: task_service_pb2.SubscribeRequest.Open) -> None:
    check_sources(violations, "open.sources", opened.sources)
    check_types(violations, "open.types", opened.types)
    if opened.session_id:
        violations.check_session_id("open.session_id", opened.session_id)
    violations.check_range(
        "open.session_ttr_ms", opened.session_ttr_ms, 0, limits.SESSION_TTR_MAX_MS
    )
    violations.check_text("open.session_name", opened.session_name, limits.NAME_BYTES_MAX)
    violations.check_not_negative("open.ttr_ms", opened.ttr_ms)


def _check_filter(violations: Violations, wanted: task_service_pb2.SubscribeRequest.Filter) -> None:
    check_types(violations, "filter.types", wanted.types)
    if wanted.none and (wanted.types or wanted.HasField("priority_bound")):
        violations.add("filter.none", "not allowed together with types or priority_bound")


def _check_credit(
    violations: Violations, credit: task_service_pb2.SubscribeRequest.Credit, tasks_open: int
) -> None:
    violations.check_not_negative("credit.tasks", credit.tasks)
    violations.check_not_negative("credit.bytes", credit.bytes)
    total = credit.tasks + tasks_open
    if total > limits.CREDIT_TASKS_MAX:
        text = f"the total credit would be {total} tasks, more than {limits.CREDIT_TASKS_MAX}"
        limit = {"value": str(credit.tasks), "limit": f"..{limits.CREDIT_TASKS_MAX - tasks_open}"}
        violations.add("credit.tasks", text, limit)
