"""Use the wheels of a release as a user does: with one interpreter, in empty environments.

Each distribution gets an environment of its own, so that a missing dependency shows.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.free_addresses import free_addresses
from tools.release.page_trial import ENVIRONMENT, TOOLS, PageFailed, run_pages

INSTALL_SECONDS_MAX: Final = 600
START_SECONDS_MAX: Final = 60
COMMAND_SECONDS_MAX: Final = 60
STOP_SECONDS_MAX: Final = 30
ASK_SECONDS_MAX: Final = 5
POLL_SECONDS: Final = 0.05
TAIL_CHARACTERS: Final = 2_000
PASSED_ON: Final = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME")
"""Variables of the caller that the programs under trial get, with those of pip and TLS."""

TASKS: Final = """from taskraft.worker import App

app = App("release")
app.tube("sums")


@app.task(tube="sums")
def add(one: int, other: int) -> int:
    return one + other
"""
RESULT: Final = """from tasks import add, app

with app:
    assert add.put(20, 22).result(timeout="30s") == 42
"""
IMPORTS: Final = "import pyspark_taskraft, taskraft_pipeline.cli, taskraft_pipeline.source"


CONSOLE: Final = ("taskraft_console", "taskraft")
PIPELINE: Final = ("taskraft_pipeline", "taskraft")
PAGES_PLACE: Final = f"pages/{ENVIRONMENT}"
"""The environment for the pages, below the folder in which their commands run."""


class TrialFailed(Exception):
    """A step of a trial failed; the text is the reason."""


@dataclass(slots=True)
class Trial:
    """The trial of all wheels with one interpreter."""

    interpreter: Path
    wheels: Mapping[str, Path]
    """The wheels, by the names of their distributions."""
    folder: Path
    """An empty folder for environments and data."""
    source: Path
    """A clone of the release, for the pages whose commands are run."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of each step that passed, by its name."""

    def run(self) -> str:
        """Run all steps up to the first that fails; return the reason, or an empty text.

        Later steps need the earlier ones.
        """
        with contextlib.ExitStack() as processes:
            for name, step in self._steps(processes):
                began = time.monotonic()
                try:
                    step()
                except TrialFailed as error:
                    return f"{name}: {error}"
                self.seconds[name] = time.monotonic() - began
        return ""

    def _steps(self, processes: contextlib.ExitStack) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the steps with their names; ``processes`` ends the processes of the steps."""
        client, http, peer, console = free_addresses(4)
        edge = ["taskraft_edge"] if "taskraft_edge" in self.wheels else []
        where = {"TASKRAFT_TARGET": client}
        server = ["taskraft_server", "taskraft", *edge]
        pages = [*server, "taskraft_console"]
        yield "install the server", lambda: self._install("server", server)
        yield (
            f"start a node, {'native edge' if edge else 'grpc.aio'}",
            lambda: self._start_node(processes, client, peer, http, native=bool(edge)),
        )
        yield "install the client", lambda: self._install("client", ["taskraft"])
        yield "put", lambda: self._taskraft("client", where, "put", "hello", "from a wheel")
        yield "take and acknowledge", lambda: self._take(where)
        yield "run a worker on a task", lambda: self._work(processes, where)
        yield "install the console", lambda: self._install("console", CONSOLE)
        yield "fetch a page", lambda: self._open_console(processes, client, console)
        yield "install the pipeline", lambda: self._install("pipeline", PIPELINE)
        yield "import the pipeline", self._import_pipeline
        yield "install all for the pages", lambda: self._install(PAGES_PLACE, pages, TOOLS)
        yield "run the quick start and the tutorial", self._run_pages

    def _install(self, name: str, distributions: Sequence[str], others: Sequence[str] = ()) -> None:
        """Create an environment and install wheels there, and packages of other projects.

        Pip fetches the dependencies.
        """
        place = self.folder / name
        self._command([str(self.interpreter), "-m", "venv", str(place)])
        pip = [str(self._program(name, "python")), "-m", "pip", "--disable-pip-version-check"]
        wheels = [str(self.wheels[one]) for one in distributions]
        self._command(
            [*pip, "install", "--quiet", *wheels, *others], seconds_max=INSTALL_SECONDS_MAX
        )
        self._command([*pip, "check"])

    def _start_node(
        self,
        processes: contextlib.ExitStack,
        client: str,
        peer: str,
        http: str,
        *,
        native: bool,
    ) -> None:
        settings = {
            "TASKRAFT_CLUSTER_ID": "release",
            "TASKRAFT_NODE_NAME": "n1",
            "TASKRAFT_DATA_DIR": str(self.folder / "data"),
            "TASKRAFT_LISTEN": client,
            "TASKRAFT_PEER_LISTEN": peer,
            "TASKRAFT_HTTP_LISTEN": http,
            "TASKRAFT_EDGE": "native" if native else "grpc",
            "TASKRAFT_AUTO_CREATE_TUBES": "true",
        }
        node = self._begin(processes, "node", ["server", "serve"], settings)
        self._fetch(f"http://{http}/readyz", node)

    def _take(self, where: Mapping[str, str]) -> None:
        taken = self._taskraft("client", where, "take", "hello", "--ack", "--raw")
        if taken.strip() != "from a wheel":
            raise TrialFailed(f"took {taken!r}")

    def _work(self, processes: contextlib.ExitStack, where: Mapping[str, str]) -> None:
        (self.folder / "tasks.py").write_text(TASKS)
        self._taskraft("client", where, "app", "apply", "tasks:app")
        self._begin(processes, "worker", ["client", "worker", "tasks:app"], where)
        self._command([str(self._program("client", "python")), "-c", RESULT], where)

    def _open_console(self, processes: contextlib.ExitStack, target: str, address: str) -> None:
        words = ["console", "console", "--target", target, "--listen", address]
        console = self._begin(processes, "console", words, {})
        # A page that is read before the node has answered names no tube yet.
        self._fetch(f"http://{address}/", console, text="hello")

    def _import_pipeline(self) -> None:
        self._command([str(self._program("pipeline", "python")), "-c", IMPORTS])
        self._taskraft("pipeline", {}, "pipeline", "--help")

    def _run_pages(self) -> None:
        try:
            run_pages(self.source, (self.folder / PAGES_PLACE).parent, clean_variables())
        except PageFailed as error:
            raise TrialFailed(str(error)[-TAIL_CHARACTERS:]) from error

    def _program(self, name: str, program: str) -> Path:
        return self.folder / name / "bin" / program

    def _taskraft(self, name: str, variables: Mapping[str, str], *words: str) -> str:
        """Run the command ``taskraft`` of an environment; return its output."""
        return self._command([str(self._program(name, "taskraft")), *words], variables)

    def _command(
        self,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        seconds_max: float = COMMAND_SECONDS_MAX,
    ) -> str:
        """Run a command in the folder; return its standard output.

        Raises:
            TrialFailed: the command failed or took too long.
        """
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env={**clean_variables(), **(variables or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds_max,
            )
        except subprocess.TimeoutExpired:
            raise TrialFailed(f"took more than {seconds_max} s") from None
        if done.returncode:
            said = (done.stdout + done.stderr).strip()[-TAIL_CHARACTERS:]
            raise TrialFailed(f"status {done.returncode}\n{said}")
        return done.stdout

    def _begin(
        self,
        processes: contextlib.ExitStack,
        name: str,
        words: Sequence[str],
        variables: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        """Start the command ``taskraft`` of an environment, whose name is the first word."""
        environment, *arguments = words
        output = processes.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [str(self._program(environment, "taskraft")), *arguments],
            cwd=self.folder,
            env={**clean_variables(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        processes.callback(_end, process)
        return process

    def _fetch(self, address: str, process: subprocess.Popen[bytes], text: str = "") -> None:
        """Wait until a process serves a page that contains a text.

        Raises:
            TrialFailed: the process ended, or the page was not served in time.
        """
        until = time.monotonic() + START_SECONDS_MAX
        reason = ""
        while time.monotonic() < until:
            if process.poll() is not None:
                raise TrialFailed(f"exit status {process.returncode}; see {self.folder}")
            try:
                if text in _page(address):
                    return
                reason = f"the page does not contain {text!r}"
            except OSError as error:  # also of a status such as 503
                reason = str(error)
            time.sleep(POLL_SECONDS)
        raise TrialFailed(f"{address} after {START_SECONDS_MAX} s: {reason}; see {self.folder}")


def clean_variables() -> dict[str, str]:
    """Return the variables that a program under trial gets: none of this project or of Python."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }


def _page(address: str) -> str:
    """Return a page; raise ``OSError`` if nothing listens, or the status is an error."""
    with urllib.request.urlopen(address, timeout=ASK_SECONDS_MAX) as answer:  # noqa: S310 - HTTP
        content: bytes = answer.read()
    return content.decode()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process; kill a process that does not stop in time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
