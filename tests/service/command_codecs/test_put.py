"""Decode parts of a put: the retry policy, and the size of a payload."""

from taskraft.v1 import task_pb2
from taskraft_service.command_codecs.put import payload_bytes
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy


def test_absent_fields_of_a_retry_policy_get_their_defaults():
    assert retry_policy(task_pb2.RetryPolicy()) == RetryPolicy(
        0, 0, 200, 86_400_000, 0, Exhausted.BURY, Position.IN_ORDER
    )
    said = task_pb2.RetryPolicy(
        attempts_max=1, backoff_ms=2, factor_percent=300, backoff_ms_max=4, jitter_percent=5,
        exhausted=3, position=2,
    )  # fmt: skip
    assert retry_policy(said) == RetryPolicy(1, 2, 300, 4, 5, Exhausted.REMOVE, Position.BACK)


def test_payload_sizes_are_found_in_any_spec():
    for spec in (
        task_pb2.TaskSpec(),
        task_pb2.TaskSpec(payload=b"x" * 300),
        task_pb2.TaskSpec(payload=b"abc", type="t"),
        task_pb2.TaskSpec(type="t"),
    ):
        assert payload_bytes(spec.SerializeToString()) == len(spec.payload)
