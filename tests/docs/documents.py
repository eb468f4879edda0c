"""Run the code blocks of the documentation.

Fenced blocks marked ``sh`` and ``python`` are executed from the top of a page to its end, in the
root of the repository, or in an empty folder in which wheels are installed
(``tools.release.page_trial``). A comment in the line above the fence, which is invisible on the
rendered page, changes this:

``<!-- docs: skip: REASON -->``
    The block is not executed, for the given reason.
``<!-- docs: background until TEXT -->``
    The next block starts when this block has printed a line with TEXT. The block keeps running and
    gets SIGINT at the end of the page.

A page with the comment ``<!-- docs: shared cluster -->`` runs against a development cluster that
all such pages share, so each of these pages uses tubes of its own.

Blocks in other languages are not executed. Each of them needs a ``skip`` comment with the reason,
except for drawings and output (``text``, unmarked) and for the directives of Sphinx.
"""

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parent.parent.parent
EXECUTED = ("sh", "python")
NO_CODE = ("text", "", "{toctree}", "{eval-rst}")
"""Languages of drawings, of output, and of directives of Sphinx."""
SHARED_CLUSTER = "<!-- docs: shared cluster -->"
BLOCK_SECONDS_MAX = 400
LINES_KEPT = 200
"""Number of the last lines of each background block that the report of a failed block has."""
STOP_SECONDS_MAX = 30

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"<!-- docs: (skip|background)(?:: | until )(.+?) -->\n\Z")


@dataclass(slots=True, frozen=True)
class Block:
    """A fenced block that is executed, with its directive."""

    page: str
    line: int
    language: str
    text: str
    directive: str = ""
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return every page of the documentation."""
    folders = (ROOT / "docs", ROOT / "examples")
    below = [page for folder in folders for page in sorted(folder.rglob("*.md"))]
    own = [page for page in below if "node_modules" not in page.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *own]


def blocks(page: str, content: str) -> list[Block]:
    """Return the executable blocks of a page, including skipped ones."""
    found = []
    for fence in FENCE.finditer(content):
        language, text = fence.groups()
        if language not in EXECUTED:
            continue
        directive = DIRECTIVE.search(content[: fence.start()])
        said = directive.groups() if directive else ("", "")
        line = content.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, language, text, *said))
    return found


def unexplained_blocks(page: str, content: str) -> list[str]:
    """Return the places of code blocks that are neither executed nor skipped with a reason."""
    return [
        f"{page}:{content.count(chr(10), 0, fence.start()) + 1}"
        for fence in FENCE.finditer(content)
        if fence[1] not in (*EXECUTED, *NO_CODE)
        and DIRECTIVE.search(content[: fence.start()]) is None
    ]


NETWORK = ("unshare", "-Urn", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity")
"""Holds a network namespace. The pages use fixed ports, which other programs may use too."""


class Session:
    """Runs the blocks of one page; a context manager that stops background blocks.

    The blocks share a network of their own where the kernel permits user namespaces.

    Args:
        beside: session whose network the blocks use; None: a network of their own.
        folder: working directory of the blocks.
        python: interpreter of the blocks in Python.
        variables: environment of the blocks; None: that of this process.
    """

    def __init__(
        self,
        beside: "Session | None" = None,
        *,
        folder: Path = ROOT,
        python: str = sys.executable,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.beside = beside
        self.folder = folder
        self.python = python
        self.running: list[subprocess.Popen[str]] = []
        self.printed: dict[str, deque[str]] = {}
        """The last lines of each background block, for reports."""
        inherited = os.environ if variables is None else variables
        self.environment = {**inherited, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        self.prefix: list[str] = []
        self.network: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Session":
        if self.beside is not None:
            self.prefix = self.beside.prefix
        elif shutil.which("unshare") and shutil.which("nsenter") and shutil.which("ip"):
            network = subprocess.Popen(
                NETWORK,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            assert network.stdout is not None
            with network.stdout:
                is_up = network.stdout.readline() == "up\n"
            if is_up:
                self.network = network
                inside = ("--target", str(network.pid), "--user", "--net", "--preserve-credentials")
                self.prefix = ["nsenter", *inside]
            else:
                network.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            if self.network is not None:
                stack.enter_context(self.network)
                stack.callback(self.network.kill)
            for process in self.running:
                stack.callback(end, process)
            for process in self.running:
                with suppress(ProcessLookupError):  # a block may have ended by itself
                    os.killpg(process.pid, signal.SIGINT)

    def command(self, block: Block) -> list[str]:
        """Return the command that executes a block."""
        if block.language == "python":
            return [*self.prefix, self.python, "-W", "error", "-c", block.text]
        return [*self.prefix, "bash", "-euo", "pipefail", "-c", block.text]

    def run(self, block: Block) -> str:
        """Execute a block and return its output.

        Raises:
            AssertionError: the block failed or printed no ready line in time.
        """
        if block.directive == "skip":
            return ""
        if block.directive == "background":
            return self.run_in_background(block)
        try:
            done = subprocess.run(
                self.command(block),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BLOCK_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            printed = (error.output or b"").decode()
            raise AssertionError(f"{block}: runs too long\n{printed}{self.report()}") from None
        assert done.returncode == 0, (
            f"{block}: status {done.returncode}\n{done.stdout}{self.report()}"
        )
        return done.stdout

    def report(self) -> str:
        """Return the last lines of the background blocks."""
        return "".join(
            f"\n--- {name} printed:\n{''.join(lines)}" for name, lines in self.printed.items()
        )

    def run_in_background(self, block: Block) -> str:
        """Start a block and return its output up to its ready line."""
        process = subprocess.Popen(
            self.command(block),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        kept = self.printed[str(block)] = deque(maxlen=LINES_KEPT)
        threading.Thread(target=drain, args=(process, lines, kept), daemon=True).start()
        printed = ""
        while block.argument not in printed:
            try:
                line = lines.get(timeout=BLOCK_SECONDS_MAX)
            except queue.Empty:
                raise AssertionError(f"{block}: no {block.argument!r} in\n{printed}") from None
            assert line, f"{block}: ended before {block.argument!r}\n{printed}"
            printed += line
        return printed


def end(process: "subprocess.Popen[str]") -> None:
    """Wait until a process has ended; kill its group if it does not end in time.

    Raises:
        subprocess.TimeoutExpired: the process had to be killed.
    """
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def drain(
    process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str]", kept: deque[str]
) -> None:
    """Read the lines of a process, so that its pipe never fills; end with an empty line."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
            kept.append(line)
    lines.put("")
