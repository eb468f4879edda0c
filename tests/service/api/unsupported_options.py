"""Requests with options that their tube does not support, and the expected violations."""

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb

IDS = task_pb2.TaskSelector(ids=[1])
UNSUITABLE = [
    pb.Settlement(tokens=[1], release={"delay_ms": 5, "update": {"priority": 1, "ttl_ms": 3}}),
    pb.Settlement(tokens=[2], ack={"retain_ms": 4}),
]
"""Settlements with options that FIFO tubes, and tubes without retention, do not support."""
UNSUITABLE_TOLD = {
    "[0].release.delay_ms": "5 is not supported in a tube of kind FIFO",
    "[0].release.update.priority": "1 is not supported in a tube of kind FIFO",
    "[0].release.update.ttl_ms": "3 is not supported in a tube of kind FIFO",
    "[1].ack.retain_ms": "is supported only for a kept task; set keep, or on_ack of the tube",
}
UNSUITABLE_CASES = {
    "a delay and changes of a kick that the kind does not know": (
        "KickTasks",
        pb.KickTasksRequest(
            tube="plain", selector=IDS, delay_ms=5, update=task_pb2.TaskUpdate(priority=1, ttr_ms=3)
        ),
        {
            "delay_ms": "5 is not supported in a tube of kind FIFO",
            "update.priority": "1 is not supported in a tube of kind FIFO",
            "update.ttr_ms": "3 is not supported in a tube of kind FIFO",
        },
    ),
    "changes that the kind does not know, of tasks that are not all there": (
        "UpdateTasks",
        pb.UpdateTasksRequest(
            tube="plain",
            selector=task_pb2.TaskSelector(ids=[99, 3]),
            update=task_pb2.TaskUpdate(payload=b"new", priority=1, delay_ms=2, ttl_ms=3),
        ),
        {
            "update.priority": "1 is not supported in a tube of kind FIFO",
            "update.delay_ms": "2 is not supported in a tube of kind FIFO",
            "update.ttl_ms": "3 is not supported in a tube of kind FIFO",
        },
    ),
    "a move to a tube that knows neither the delay nor the changes": (
        "MoveTasks",
        pb.MoveTasksRequest(
            tube="emails",
            selector=IDS,
            move_to="plain",
            delay_ms=7,
            update=task_pb2.TaskUpdate(priority=1),
        ),
        {
            "delay_ms": "7 is not supported in a tube of kind FIFO",
            "update.priority": "1 is not supported in a tube of kind FIFO",
        },
    ),
    "leases that are settled together in a tube that does not know the wishes": (
        "SettleTasks",
        pb.SettleTasksRequest(settlements=UNSUITABLE, atomic=True),
        {f"settlements{name}": words for name, words in UNSUITABLE_TOLD.items()},
    ),
    "leases and changes of a batch": (
        "ExecuteBatch",
        pb.ExecuteBatchRequest(
            operations=[
                {"settle": pb.SettleTasksRequest(settlements=UNSUITABLE)},
                {
                    "update": pb.UpdateTasksRequest(
                        tube="plain",
                        selector=task_pb2.TaskSelector(ids=[3]),
                        update=task_pb2.TaskUpdate(priority=1),
                    )
                },
            ]
        ),
        {
            **{
                f"operations[0].settle.settlements{name}": words
                for name, words in UNSUITABLE_TOLD.items()
            },
            "operations[1].update.update.priority": "1 is not supported in a tube of kind FIFO",
        },
    ),
}
"""Method, request, and expected texts by field, for the tubes of ``test_violations``."""
