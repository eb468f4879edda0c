"""Decode failures and retry policies."""

from __future__ import annotations

from taskraft.v1 import task_pb2, task_service_pb2
from taskraft_service.queue.entities.retry_policy import (
    BACKOFF_MS_MAX,
    NO_RETRY,
    Exhausted,
    Position,
    RetryPolicy,
)
from taskraft_service.queue.entities.task_view import Failure


def retry_policy(policy: task_pb2.RetryPolicy) -> RetryPolicy:
    """Return a retry policy with its defaults applied."""
    return RetryPolicy(
        attempts_max=policy.attempts_max,
        backoff_ms=policy.backoff_ms,
        factor_percent=policy.factor_percent or NO_RETRY.factor_percent,
        backoff_ms_max=policy.backoff_ms_max or BACKOFF_MS_MAX,
        jitter_percent=policy.jitter_percent,
        exhausted=Exhausted(policy.exhausted or Exhausted.BURY),
        position=Position(policy.position),
    )


def failure_of(
    message: (
        task_service_pb2.Settlement.Release
        | task_service_pb2.Settlement.Bury
        | task_service_pb2.Settlement.Reject
        | task_service_pb2.BuryTasksRequest
    ),
) -> Failure | None:
    """Return the failure in a message, or None."""
    if not message.HasField("failure"):
        return None
    failure = message.failure
    return Failure(failure.type, failure.message, failure.fatal)
