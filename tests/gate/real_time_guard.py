"""Fail a test of stage 1 that starts a process, opens a port or waits for the real clock.

The guard watches what happens, not what the source says: Python's audit events report processes
and sockets, also those of libraries. Three further places are watched, because Python 3.11 reports
no audit event for them: ``time.sleep``, a wait of the event loop that ends without an event, and a
port that gRPC's C core opens.
"""

import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc._server
import grpc.aio._server
import pytest

from tests.gate.stages import stage_of

PROCESSES: Final = frozenset(
    {
        "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn",
        "os.system",
    }
)  # fmt: skip
"""Audit events of a program that starts."""
PORTS: Final = frozenset({"socket.bind", "socket.connect"})
"""Audit events of a socket that gets an address."""
GRPC_PORTS: Final = (
    (grpc.aio._server.Server, "add_insecure_port"),
    (grpc.aio._server.Server, "add_secure_port"),
    (grpc._server._Server, "add_insecure_port"),
    (grpc._server._Server, "add_secure_port"),
)
"""Methods of gRPC that open a port."""


class RealTimeGuard:
    """Records what the running test of stage 1 does in real time.

    Threads that earlier tests have left do not count.
    """

    def __init__(self) -> None:
        self._deeds: list[str] | None = None
        self._older: frozenset[threading.Thread] = frozenset()

    def begin(self) -> None:
        """Begin to watch a test."""
        self._older = frozenset(threading.enumerate()) - {threading.current_thread()}
        self._deeds = []

    def end(self) -> list[str]:
        """Stop watching; return what the test did in real time."""
        deeds, self._deeds = self._deeds or [], None
        return deeds

    @property
    def is_watching(self) -> bool:
        """Whether a test of stage 1 runs."""
        return self._deeds is not None

    @property
    def deeds(self) -> list[str]:
        """What the watched test did so far; empty if no test is watched."""
        return self._deeds or []

    def note(self, deed: str) -> None:
        """Record something that the watched test did, each thing once."""
        if self._deeds is None or deed in self._deeds:
            return
        if threading.current_thread() not in self._older:
            self._deeds.append(deed)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an audit event of Python."""
        if self._deeds is None:
            return
        if event in PROCESSES:
            self.note(f"it started a process ({event})")
        elif event in PORTS and isinstance(arguments[1], tuple):
            self.note(f"it used a port ({event} {arguments[1]})")

    def sleeping(self, original: Callable[[float], None]) -> Callable[[float], None]:
        """Return a ``sleep`` that records itself."""

        def watched(seconds: float) -> None:
            if seconds > 0:
                self.note(f"it slept ({seconds} s)")
            original(seconds)

        return watched

    def noting(self, deed: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that records a deed and then makes the call."""

        def noted(*arguments: Any, **named: Any) -> Any:
            self.note(deed)
            return call(*arguments, **named)

        return noted

    def selecting(self, select: Callable[..., Any]) -> Callable[..., Any]:
        """Return a ``select`` that records each wait that ends because its time has passed."""

        def watched(selector: object, timeout: float | None = None) -> Any:
            ready = select(selector, timeout)
            if timeout is not None and timeout > 0 and not ready:
                self.note("its event loop waited for a timer")
            return ready

        return watched


GUARD: Final = RealTimeGuard()


def pytest_configure() -> None:
    """Watch this process. An audit hook stays for the life of the process."""
    sys.addaudithook(GUARD.audit)
    for owner, method in GRPC_PORTS:
        setattr(owner, method, GUARD.noting("it opened a port of gRPC", getattr(owner, method)))
    time.sleep = GUARD.sleeping(time.sleep)
    selector: Any = selectors.DefaultSelector
    selector.select = GUARD.selecting(selector.select)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch a test of stage 1 from its set-up to its end."""
    if stage_of(item) == 1:
        GUARD.begin()
    try:
        return (yield)
    finally:
        GUARD.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    """Fail a test that passed but watched the real clock."""
    report = yield
    if call.when == "teardown" and report.passed and GUARD.deeds:
        deeds = "; ".join(GUARD.deeds)
        report.outcome = "failed"
        report.longrepr = f"this test has no marker `real_time`, but {deeds} (tests/gate/stages.py)"
    return report
