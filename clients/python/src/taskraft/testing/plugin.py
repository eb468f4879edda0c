"""Fixtures for pytest, found by the entry point `pytest11` of the client.

This module imports the kit when a test uses it: all pytest runs beside an installed client load it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from taskraft.testing import AsyncKit, Kit
    from taskraft.testing.real_cluster import RealCluster
    from taskraft.worker import App

ASYNC_FIXTURE = "ataskraft"
MARKER = "taskraft"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the app of the tests and choose the cluster."""
    parser.getgroup("taskraft").addoption(
        "--taskraft",
        choices=("memory", "real"),
        default="memory",
        help="cluster of the fixtures taskraft and ataskraft: in memory with a virtual clock, or a "
        "real node; tests that need the virtual clock are then skipped",
    )
    parser.addini("taskraft_app", 'app of the fixture taskraft_app, as "module:app"', default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``taskraft`` with its description."""
    config.addinivalue_line(
        "markers",
        "taskraft(app=None, start=None, auto_create_tubes=False): the app, the time of day at the "
        "beginning, and whether puts create tubes, for the fixtures of taskraft.testing",
    )


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the kit from the marker, without the app."""
    marker = request.node.get_closest_marker(MARKER)
    options: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    options.pop("app", None)
    if request.config.getoption("--taskraft") == "real":
        options["cluster"] = request.getfixturevalue("taskraft_cluster")
    return options


def _app(request: pytest.FixtureRequest) -> App | None:
    """Return the app from the marker or the ini file; an object, or the text "module:app"."""
    marker = request.node.get_closest_marker(MARKER)
    named = (marker.kwargs.get("app") if marker else None) or request.config.getini("taskraft_app")
    if not isinstance(named, str):
        return named  # type: ignore[no-any-return]  # the app in the marker
    if not named:
        return None
    module, _, name = named.partition(":")
    return getattr(import_module(module), name or "app")  # type: ignore[no-any-return]  # named by the user


@pytest.fixture
def taskraft(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Return a new `taskraft.testing.Kit`; it runs the app of the ini file or of the marker."""
    from taskraft.testing import Kit  # noqa: PLC0415 - see the module

    with Kit(_app(request), **_options(request)) as kit:
        yield kit


@pytest.fixture
def taskraft_app(taskraft: Kit) -> App:
    """Return the app of the test, on the cluster of the fixture `taskraft`."""
    return taskraft.app


@pytest.fixture(scope="session")
def taskraft_cluster() -> Iterator[RealCluster]:
    """Return a real node that `taskraft dev` runs, started by the first test that needs it."""
    from taskraft.testing.real_cluster import RealCluster  # noqa: PLC0415 - see the module

    with RealCluster() as cluster:
        yield cluster


async def _ataskraft(request: pytest.FixtureRequest) -> AsyncIterator[AsyncKit]:
    """Return a new `taskraft.testing.AsyncKit`, for tests that are coroutines."""
    from taskraft.testing import AsyncKit  # noqa: PLC0415 - see the module

    async with AsyncKit(_app(request), **_options(request)) as kit:
        yield kit


try:
    import pytest_asyncio
except ImportError:
    pass
else:
    ataskraft = pytest_asyncio.fixture(_ataskraft, name=ASYNC_FIXTURE)
