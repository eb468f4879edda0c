"""Find the tube drivers that are installed beside the server.

A distribution offers a driver by an entry point in the group ``taskraft.drivers``, whose object
satisfies ``taskraft_service.queue.entities.tube_driver.TubeDriver``. docs/drivers.md has a worked
example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from taskraft_service.queue.entities.tube_driver import TubeDriver

GROUP: Final = "taskraft.drivers"


class DriverUnusable(Exception):
    """An installed driver cannot be loaded or is invalid; the text names it."""


def installed_drivers(found: Iterable[EntryPoint] | None = None) -> Mapping[str, TubeDriver]:
    """Return the installed drivers by name.

    Args:
        found: entry points to load; None: all of the group.

    Raises:
        DriverUnusable: a driver is invalid, or two drivers have the same name.
    """
    drivers: dict[str, TubeDriver] = {}
    for entry_point in entry_points(group=GROUP) if found is None else found:
        driver = _load(entry_point)
        if driver.name in drivers:
            raise DriverUnusable(
                f"two installed drivers are named {driver.name!r}; uninstall one of them"
            )
        drivers[driver.name] = driver
    return drivers


def _load(entry_point: EntryPoint) -> TubeDriver:
    try:
        driver: object = entry_point.load()
    except Exception as error:  # third-party code may raise anything
        raise DriverUnusable(f"driver {entry_point.value!r} cannot be loaded: {error}") from error
    name, version = getattr(driver, "name", None), getattr(driver, "version", None)
    if not (isinstance(name, str) and name and isinstance(version, int) and version >= 1):
        raise DriverUnusable(f"driver {entry_point.value!r} has no name, or its version is below 1")
    for method in ("refuse", "place"):
        if not callable(getattr(driver, method, None)):
            raise DriverUnusable(f"driver {entry_point.value!r} has no method {method!r}")
    return driver  # type: ignore[return-value]  # its attributes were checked above
