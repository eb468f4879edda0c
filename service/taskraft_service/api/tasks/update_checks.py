"""Check changes of tasks and retry policies against the limits of the contract."""

from __future__ import annotations

from taskraft.v1 import task_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.queue.entities.option_checks import retry_violations


def check_update(
    wrong: Violations, path: str, update: task_pb2.TaskUpdate, payload_bytes_max: int
) -> None:
    """Check what of a task is to change."""
    wrong.check_size(f"{path}.payload", len(update.payload), payload_bytes_max)
    wrong.check_text(f"{path}.content_type", update.content_type, limits.CONTENT_TYPE_BYTES_MAX)
    for name in ("delay_ms", "ttl_ms", "ttr_ms"):
        wrong.check_not_negative(f"{path}.{name}", getattr(update, name))
    headers_bytes = 0
    for name, content in update.headers_set.items():
        wrong.check_text(f"{path}.headers_set[{name[:32]}]", name, limits.HEADER_NAME_BYTES_MAX)
        if not name:
            wrong.add(f"{path}.headers_set", "a header without a name")
        headers_bytes += len(name.encode()) + len(content)
    wrong.check_size(f"{path}.headers_set", headers_bytes, limits.HEADERS_BYTES_MAX)
    wrong.check_count(f"{path}.headers_remove", update.headers_remove, limits.NAMES_MAX)
    for place, name in enumerate(update.headers_remove):
        wrong.check_text(f"{path}.headers_remove[{place}]", name, limits.HEADER_NAME_BYTES_MAX)
        if not name:
            wrong.add(f"{path}.headers_remove[{place}]", "a header without a name")
    for name in sorted(set(update.headers_set) & set(update.headers_remove)):
        wrong.add(f"{path}.headers_remove", f"{name[:32]} is set as well")


def brings_content(update: task_pb2.TaskUpdate) -> bool:
    """Tell whether an update may make tasks larger."""
    return bool(update.payload or update.headers_set)


def check_transition_update(
    wrong: Violations, path: str, update: task_pb2.TaskUpdate, payload_bytes_max: int
) -> None:
    """Check changes that come together with a transition, which has a delay of its own."""
    check_update(wrong, path, update, payload_bytes_max)
    if update.HasField("delay_ms"):
        wrong.add(f"{path}.delay_ms", "means nothing here: the transition says it")


def check_retry(wrong: Violations, path: str, policy: task_pb2.RetryPolicy) -> None:
    """Check the retry policy of a task; whether there is a dead-letter tube is not known here."""
    for field, text in retry_violations(retry_policy(known_retry(wrong, path, policy)), None):
        wrong.add(f"{path}.{field}", text)


def known_retry(wrong: Violations, path: str, policy: task_pb2.RetryPolicy) -> task_pb2.RetryPolicy:
    """Check the choices of a retry policy; return it without those that nobody knows."""
    known = task_pb2.RetryPolicy()
    known.CopyFrom(policy)
    if not wrong.check_choice(
        f"{path}.exhausted", policy.exhausted, type(policy).Exhausted.values()
    ):
        known.ClearField("exhausted")
    positions = task_pb2.TaskSpec.Position.values()
    if not wrong.check_choice(f"{path}.position", policy.position, positions):
        known.ClearField("position")
    return known
