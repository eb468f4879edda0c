"""Put tasks into taskraft, take them, and settle them.

`Client` is for threads and scripts, `AsyncClient` for asyncio; both do the same. What is named here
is imported when it is first used, so that the generated stubs (`taskraft.v1`) and the command line
load nothing that they do not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft._async_client import AsyncClient
    from taskraft._async_tube import AsyncTube, TakeOptions
    from taskraft._client import Client
    from taskraft._durations import Duration
    from taskraft._payload import Json, Payload
    from taskraft._spec import PutOptions, Retry
    from taskraft._subscription import AsyncSubscription, SubscribeOptions
    from taskraft._sync_subscription import Subscription
    from taskraft._sync_taken import TakenTask
    from taskraft._sync_tube import Tube
    from taskraft._taken import AsyncTakenTask
    from taskraft._task import Task
    from taskraft._tubes import TubeSettings
    from taskraft.errors import TaskraftError

__version__: Final = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "AsyncTakenTask",
    "AsyncTube",
    "Client",
    "Duration",
    "Json",
    "Payload",
    "PutOptions",
    "Retry",
    "SubscribeOptions",
    "Subscription",
    "TakeOptions",
    "TakenTask",
    "Task",
    "TaskraftError",
    "Tube",
    "TubeSettings",
    "__version__",
    "errors",
]

_MODULES: Final = {
    "AsyncClient": "_async_client",
    "AsyncSubscription": "_subscription",
    "AsyncTakenTask": "_taken",
    "AsyncTube": "_async_tube",
    "Client": "_client",
    "Duration": "_durations",
    "Json": "_payload",
    "Payload": "_payload",
    "PutOptions": "_spec",
    "Retry": "_spec",
    "SubscribeOptions": "_subscription",
    "Subscription": "_sync_subscription",
    "TakeOptions": "_async_tube",
    "TakenTask": "_sync_taken",
    "Task": "_task",
    "TaskraftError": "errors",
    "Tube": "_sync_tube",
    "TubeSettings": "_tubes",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("taskraft.errors")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'taskraft' has no attribute {name!r}")
    found: object = getattr(import_module(f"taskraft.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
