"""Run tests against mutants, each in a fork of a process that has imported the unchanging modules.

Started as a script in a copy of the code, with the copy's folder as its argument. Reads one JSON
order per line and answers with one JSON line. The mutant exists only in the memory of the fork: its
module is compiled from the changed text, and no file is written. Forking saves the imports of
pytest and gRPC, which take longer than most tests.

Nothing outlives the calling program. When the input ends, the fork and all processes that it has
started are killed, and the copy is deleted.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pytest

LOOK_SECONDS: Final = 0.02
"""Interval at which the worker checks for the end of the fork and of the input."""

TEST_CPU_SECONDS_MAX: Final = 25
"""CPU time limit of one test; the order contains its limit of elapsed time."""

PLUGINS: Final = (
    *("-p", "pytest_asyncio.plugin", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "pytest_timeout", "--timeout", "0"),
)
"""The only plugins. The first is imported before pytest could rewrite it, which causes a warning.
The second is there for its settings in pyproject.toml; this program has limits of its own."""

IMPORTED: Final = (
    "cronsim",
    "cryptography.x509",
    "google.rpc.error_details_pb2",
    "google.rpc.status_pb2",
    "google_crc32c",
    "grpc.aio",
    "grpc_health.v1.health",
    "grpc_reflection.v1alpha.reflection",
    "hypothesis.stateful",
    "lark",
    "prometheus_client",
    "pydantic_settings",
    "pytest",
    "pytest_asyncio.plugin",
    "rocksdict",
    "sortedcontainers",
    "structlog",
    "taskraft_service.stubs.log.v1.log_pb2",
    "taskraft_replication.stubs.raft.v1.raft_pb2_grpc",
    "taskraft.v1",
)

MEMORY_BYTES_MAX: Final = 6 << 30


class _Loader(SourceFileLoader):
    """Compiles a module from a text that differs from its file."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the mutant."""
        path = self.get_filename(fullname)
        return compile(self._source, path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as a mutant."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to load the mutant; return None for other modules."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


class _Reporter:
    """A pytest plugin that records the current test and the first failed one."""

    def __init__(self, notes: IO[str], test_seconds_max: int) -> None:
        self._notes = notes
        self._test_seconds_max = test_seconds_max

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record the running test, and start its time limit."""
        self._note(started=nodeid)
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU_SECONDS_MAX)
        signal.alarm(self._test_seconds_max)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failed test."""
        self._judge(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that cannot be collected."""
        self._judge(report)

    def _judge(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(report.longrepr) if crash is None else crash.message
            self._note(failed=report.nodeid, reason=reason.strip()[-300:])

    def _note(self, **note: str) -> None:
        print(json.dumps(note), file=self._notes, flush=True)


def _test(order: dict[str, Any], notes: IO[str], output: IO[str]) -> int:
    """Run pytest on the mutant, in the fork; return its exit status."""
    import pytest  # noqa: PLC0415 - already imported, before the fork

    os.setpgid(0, 0)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    if order["module"]:
        sys.meta_path.insert(0, _Finder(order["module"], order["source"]))
    words = ["-q", "-x", "-p", "no:cacheprovider", "--tb=line", *PLUGINS, *order["arguments"]]
    return int(pytest.main(words, plugins=[_Reporter(notes, order["test_seconds_max"])]))


def _watch(child: int) -> int | None:
    """Wait for the fork; return its exit status, or None when the input has ended."""
    while True:
        ended, how = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(how)
        if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            # Orders come one at a time, so readable input during an order means the end of the
            # input.
            _kill(child)
            os.waitpid(child, 0)
            return None


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _answer(order: dict[str, Any]) -> dict[str, Any] | None:
    """Carry out an order: return the first failed test and the reason.

    Return None when the input ended.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as notes, tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            status = 70  # pytest reports an internal error.
            try:
                status = _test(order, notes, output)
            except BaseException:  # noqa: BLE001 - the fork must end here after any exception
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = _watch(child)
        if status is None:
            return None
        _kill(child)
        notes.seek(0)
        output.seek(0)
        seen = [json.loads(line) for line in notes]
        said = output.read()[-300:]
    killer, reason = _killer(status, seen, said)
    return {"killer": killer, "reason": reason, "seconds": time.monotonic() - begun}


def _killer(status: int, seen: Sequence[dict[str, str]], said: str) -> tuple[str, str]:
    """Return the first failed test and the reason; the test is empty if all passed."""
    for note in seen:
        if "failed" in note:
            return note["failed"], note["reason"]
    if status == 0:
        return "", ""
    if status < 0 and seen:
        return seen[-1]["started"], f"ended by signal {-status}: it hangs or takes too much"
    return "pytest itself", said


def _warm_up() -> None:
    """Import the modules that tests need and that no mutant changes."""
    for name in IMPORTED:
        importlib.import_module(name)


def main() -> None:
    """Execute orders until the input ends, then remove the copy."""
    folder = Path(sys.argv[1])
    # The caller stops this process by closing the input, also when the caller is interrupted.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm_up()
    while order := sys.stdin.readline():
        answer = _answer(json.loads(order))
        if answer is None:
            break
        print(json.dumps(answer), flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # Replace the folder of this script, which holds no packages, with the copy of the code.
    sys.path[0] = str(Path.cwd())
    main()
