"""Test code that uses taskraft: the real queue in memory, with a virtual clock.

The kit starts no process, opens no port and does not sleep. pytest finds the fixtures of
`taskraft.testing.plugin` by itself, and loads this package with them, so each name is imported on
first use. The kit needs the distribution of the server: `pip install 'taskraft[testing]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from taskraft.testing.async_kit import AsyncKit, RunReport
    from taskraft.testing.clock import Clock
    from taskraft.testing.errors import ClockStuck, NotInReal, ServerMissing, TasksLeft
    from taskraft.testing.kit import Kit
    from taskraft.testing.real_cluster import RealCluster

_MODULES: Final = {
    "AsyncKit": "async_kit",
    "Clock": "clock",
    "ClockStuck": "errors",
    "Kit": "kit",
    "NotInReal": "errors",
    "RealCluster": "real_cluster",
    "RunReport": "async_kit",
    "ServerMissing": "errors",
    "TasksLeft": "errors",
}
"""The public names with their modules."""

__all__ = [
    "AsyncKit",
    "Clock",
    "ClockStuck",
    "Kit",
    "NotInReal",
    "RealCluster",
    "RunReport",
    "ServerMissing",
    "TasksLeft",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the types of the names are above
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
