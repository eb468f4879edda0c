"""Read failures, and the policies that say what follows from them."""

from __future__ import annotations

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service.queue import commands as core


def retry_policy(policy: task_pb2.RetryPolicy) -> core.RetryPolicy:
    """Return a retry policy with its defaults applied."""
    return core.RetryPolicy(
        attempts_max=policy.attempts_max,
        backoff_ms=policy.backoff_ms,
        factor_percent=policy.factor_percent or core.NO_RETRY.factor_percent,
        backoff_ms_max=policy.backoff_ms_max or core.BACKOFF_MS_MAX,
        jitter_percent=policy.jitter_percent,
        exhausted=core.Exhausted(policy.exhausted or core.Exhausted.BURY),
        position=core.Position(policy.position),
    )


def failure_of(
    message: (
        task_service_pb2.Settlement.Release
        | task_service_pb2.Settlement.Bury
        | task_service_pb2.Settlement.Reject
        | task_service_pb2.BuryTasksRequest
    ),
) -> core.Failure | None:
    """Return why an attempt failed, where a message says so."""
    if not message.HasField("failure"):
        return None
    failure = message.failure
    return core.Failure(failure.type, failure.message, failure.fatal)
