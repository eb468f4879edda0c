"""Put tasks into taskraft, take them, and settle them.

`Client` is for threads and scripts, `AsyncClient` for asyncio; both offer the same operations. Each
name of this package is imported on first use, so that the generated stubs (`taskraft.v1`) and the
command line do not load unneeded modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft._async_client import AsyncClient
    from taskraft._async_selected_tasks import Cancelled
    from taskraft._async_subscription import AsyncSubscription, SubscribeOptions
    from taskraft._async_taken_task import AsyncTakenTask
    from taskraft._async_tube import AsyncTube
    from taskraft._batch import Batch
    from taskraft._cluster_settings import ClusterSettings
    from taskraft._durations import Duration
    from taskraft._groups import AsyncGroups, Groups
    from taskraft._payload import Json, Payload
    from taskraft._planned_task import PlannedTask
    from taskraft._schedules import AsyncSchedules, ScheduleOptions, Schedules
    from taskraft._settlement import ReleaseOptions
    from taskraft._sync_client import Client
    from taskraft._sync_subscription import Subscription
    from taskraft._sync_taken_task import TakenTask
    from taskraft._sync_tube import Tube
    from taskraft._take import TakeOptions
    from taskraft._task import Task
    from taskraft._task_selection import Keys, TaskChanges, Where
    from taskraft._task_spec import PutOptions, Retry
    from taskraft._tube_settings import TubeSettings
    from taskraft.credentials import AccessOptions
    from taskraft.errors import TaskraftError

__version__: Final = "0.1.0"

__all__ = [
    "AccessOptions",
    "AsyncClient",
    "AsyncGroups",
    "AsyncSchedules",
    "AsyncSubscription",
    "AsyncTakenTask",
    "AsyncTube",
    "Batch",
    "Cancelled",
    "Client",
    "ClusterSettings",
    "Duration",
    "Groups",
    "Json",
    "Keys",
    "Payload",
    "PlannedTask",
    "PutOptions",
    "ReleaseOptions",
    "Retry",
    "ScheduleOptions",
    "Schedules",
    "SubscribeOptions",
    "Subscription",
    "TakeOptions",
    "TakenTask",
    "Task",
    "TaskChanges",
    "TaskraftError",
    "Tube",
    "TubeSettings",
    "Where",
    "__version__",
    "errors",
]

_MODULES: Final = {
    "AccessOptions": "credentials",
    "AsyncClient": "_async_client",
    "AsyncGroups": "_groups",
    "AsyncSchedules": "_schedules",
    "AsyncSubscription": "_async_subscription",
    "AsyncTakenTask": "_async_taken_task",
    "AsyncTube": "_async_tube",
    "Batch": "_batch",
    "Cancelled": "_async_selected_tasks",
    "Client": "_sync_client",
    "ClusterSettings": "_cluster_settings",
    "Duration": "_durations",
    "Groups": "_groups",
    "Json": "_payload",
    "Keys": "_task_selection",
    "Payload": "_payload",
    "PlannedTask": "_planned_task",
    "PutOptions": "_task_spec",
    "ReleaseOptions": "_settlement",
    "Retry": "_task_spec",
    "ScheduleOptions": "_schedules",
    "Schedules": "_schedules",
    "SubscribeOptions": "_async_subscription",
    "Subscription": "_sync_subscription",
    "TakeOptions": "_take",
    "TakenTask": "_sync_taken_task",
    "Task": "_task",
    "TaskChanges": "_task_selection",
    "TaskraftError": "errors",
    "Tube": "_sync_tube",
    "TubeSettings": "_tube_settings",
    "Where": "_task_selection",
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
