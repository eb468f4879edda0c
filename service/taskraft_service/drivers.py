"""Find the drivers that are installed beside the server.

A distribution offers one by an entry point of the group ``taskraft.drivers``, whose object
satisfies ``taskraft_service.queue.entities.tube_driver.TubeDriver``. docs/drivers.md has a
worked example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from taskraft_service.queue.entities.tube_driver import TubeDriver

GROUP: Final = "taskraft.drivers"


class DriverUnusable(Exception):
    """An installed driver cannot be loaded, or is none; the text names it."""


def installed_drivers(found: Iterable[EntryPoint] | None = None) -> Mapping[str, TubeDriver]:
    """Return the installed drivers by name.

    Args:
        found: the entry points to look at; None: all of the group.

    Raises:
        DriverUnusable: one of them cannot be used, or two have one name.
    """
    drivers: dict[str, TubeDriver] = {}
    for entry_point in entry_points(group=GROUP) if found is None else found:
        driver = _load(entry_point)
        if driver.name in drivers:
            raise DriverUnusable(f"two drivers are called {driver.name!r}")
        drivers[driver.name] = driver
    return drivers


def _load(entry_point: EntryPoint) -> TubeDriver:
    try:
        driver: object = entry_point.load()
    except Exception as error:  # the code of somebody else may raise anything
        raise DriverUnusable(f"driver {entry_point.value!r} cannot be loaded: {error}") from error
    name, version = getattr(driver, "name", None), getattr(driver, "version", None)
    if not (isinstance(name, str) and name and isinstance(version, int) and version >= 1):
        raise DriverUnusable(f"driver {entry_point.value!r} has no name, or no version from 1")
    for method in ("refuse", "place"):
        if not callable(getattr(driver, method, None)):
            raise DriverUnusable(f"driver {entry_point.value!r} has no method {method!r}")
    return driver  # type: ignore[return-value]  # its shape was looked at
