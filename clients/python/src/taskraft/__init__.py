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
    from taskraft._groups import AsyncGroups, Group, Groups
    from taskraft._payload import Json, Payload
    from taskraft._planned_task import PlannedTask
    from taskraft._put_options import PutOptions
    from taskraft._retry import Retry
    from taskraft._schedules import AsyncSchedules, Schedule, ScheduleOptions, Schedules
    from taskraft._settlement import ReleaseOptions
    from taskraft._sync_client import Client
    from taskraft._sync_subscription import Subscription
    from taskraft._sync_taken_task import TakenTask
    from taskraft._sync_tube import Tube
    from taskraft._take import TakeOptions
    from taskraft._task import AttemptFailure, Task, TaskPage
    from taskraft._task_selection import Keys, TaskChanges, Where
    from taskraft._tube_differences import TubeDiffers
    from taskraft._tube_info import TubeInfo, TubeOptions
    from taskraft._tube_settings import TubeSettings
    from taskraft._tube_statistics import (
        OperationCounts,
        Statistics,
        TaskCounts,
        TransitionCount,
        TubeStatistics,
    )
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
    "AttemptFailure",
    "Batch",
    "Cancelled",
    "Client",
    "ClusterSettings",
    "Duration",
    "Group",
    "Groups",
    "Json",
    "Keys",
    "OperationCounts",
    "Payload",
    "PlannedTask",
    "PutOptions",
    "ReleaseOptions",
    "Retry",
    "Schedule",
    "ScheduleOptions",
    "Schedules",
    "Statistics",
    "SubscribeOptions",
    "Subscription",
    "TakeOptions",
    "TakenTask",
    "Task",
    "TaskChanges",
    "TaskCounts",
    "TaskPage",
    "TaskraftError",
    "TransitionCount",
    "Tube",
    "TubeDiffers",
    "TubeInfo",
    "TubeOptions",
    "TubeSettings",
    "TubeStatistics",
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
    "AttemptFailure": "_task",
    "Batch": "_batch",
    "Cancelled": "_async_selected_tasks",
    "Client": "_sync_client",
    "ClusterSettings": "_cluster_settings",
    "Duration": "_durations",
    "Group": "_groups",
    "Groups": "_groups",
    "Json": "_payload",
    "Keys": "_task_selection",
    "OperationCounts": "_tube_statistics",
    "Payload": "_payload",
    "PlannedTask": "_planned_task",
    "PutOptions": "_put_options",
    "ReleaseOptions": "_settlement",
    "Retry": "_retry",
    "Schedule": "_schedules",
    "ScheduleOptions": "_schedules",
    "Schedules": "_schedules",
    "Statistics": "_tube_statistics",
    "SubscribeOptions": "_async_subscription",
    "Subscription": "_sync_subscription",
    "TakeOptions": "_take",
    "TakenTask": "_sync_taken_task",
    "Task": "_task",
    "TaskChanges": "_task_selection",
    "TaskCounts": "_tube_statistics",
    "TaskPage": "_task",
    "TaskraftError": "errors",
    "TransitionCount": "_tube_statistics",
    "Tube": "_sync_tube",
    "TubeDiffers": "_tube_differences",
    "TubeInfo": "_tube_info",
    "TubeOptions": "_tube_info",
    "TubeSettings": "_tube_settings",
    "TubeStatistics": "_tube_statistics",
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
