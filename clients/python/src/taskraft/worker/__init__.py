"""Run typed functions as tasks: declare them on an `App`, put them, and run workers.

    app = App("shop")

    @app.task(tube="mail")
    async def welcome(order: int) -> None: ...

    welcome.put(7)

`taskraft worker shop:app` runs a worker. See docs/workers.md.
"""

from taskraft._handler_error import HandlerError
from taskraft.worker.app import App
from taskraft.worker.codecs import (
    BytesCodec,
    Codec,
    JsonCodec,
    MsgspecCodec,
    PydanticCodec,
    WrappedCodec,
)
from taskraft.worker.context import Context, TaskLogFilter
from taskraft.worker.dependencies import Depends
from taskraft.worker.errors import (
    BatchError,
    CancelRequested,
    DecodeError,
    EncodeError,
    InvalidResult,
    InvalidTask,
    LeaseLost,
    RejectTask,
    ResultNotKept,
    RetryTask,
    Snooze,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskInterrupted,
    TaskNotProcessed,
    TimeLimitExceeded,
    WorkerError,
    WorkerLost,
    WorkerStopping,
)
from taskraft.worker.flows import AppGroup, FanOut, Flow, chain, group
from taskraft.worker.handle import Handle, Progress, Result
from taskraft.worker.middleware import Middleware, PutRequest
from taskraft.worker.options import CallOptions, ConsumerOptions, TaskOptions, WorkerOptions
from taskraft.worker.outbox import Outbox
from taskraft.worker.outbox_relay import OutboxRelay
from taskraft.worker.task import BatchDecorator, Plan, TaskDecorator, TaskFunction

__all__ = [
    "App",
    "AppGroup",
    "BatchDecorator",
    "BatchError",
    "BytesCodec",
    "CallOptions",
    "CancelRequested",
    "Codec",
    "ConsumerOptions",
    "Context",
    "DecodeError",
    "Depends",
    "EncodeError",
    "FanOut",
    "Flow",
    "Handle",
    "HandlerError",
    "InvalidResult",
    "InvalidTask",
    "JsonCodec",
    "LeaseLost",
    "Middleware",
    "MsgspecCodec",
    "Outbox",
    "OutboxRelay",
    "Plan",
    "Progress",
    "PutRequest",
    "PydanticCodec",
    "RejectTask",
    "Result",
    "ResultNotKept",
    "RetryTask",
    "Snooze",
    "TaskCancelled",
    "TaskDecorator",
    "TaskExpired",
    "TaskFailed",
    "TaskFunction",
    "TaskInterrupted",
    "TaskLogFilter",
    "TaskNotProcessed",
    "TaskOptions",
    "TimeLimitExceeded",
    "WorkerError",
    "WorkerLost",
    "WorkerOptions",
    "WorkerStopping",
    "WrappedCodec",
    "chain",
    "group",
]
