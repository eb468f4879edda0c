"""Run a cluster of real node processes on loopback, for development."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Final

from taskraft_service.process import parent_watch

PORT_STEP: Final = 10
"""Distance between the ports of two nodes. A node uses its port, port + 1 for peers and port + 79
for HTTP."""
PEER_OFFSET: Final = 1
HTTP_OFFSET: Final = 79
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
FAILED_STARTS_MAX: Final = 3
"""Maximum consecutive starts of a node that never becomes ready; then the cluster stops."""
EXIT_REFUSED: Final = 1
"""Exit status of a node that the others refuse, for example because it was removed."""
EXIT_USAGE: Final = 2
_HOST: Final = "127.0.0.1"


@dataclass(slots=True, frozen=True)
class DevNode:
    """One node of a development cluster: its name and its ports."""

    name: str
    port: int

    @property
    def client(self) -> str:
        """Address for clients."""
        return f"{_HOST}:{self.port}"

    @property
    def peer(self) -> str:
        """Address for the other nodes."""
        return f"{_HOST}:{self.port + PEER_OFFSET}"

    @property
    def http(self) -> str:
        """Address for probes and metrics."""
        return f"{_HOST}:{self.port + HTTP_OFFSET}"

    def environment(self, nodes: Sequence[DevNode], data: Path) -> dict[str, str]:
        """Return the environment of the node's process, with its settings."""
        peers = ",".join(f"{node.name}={node.peer}/{node.client}" for node in nodes)
        return {
            **os.environ,
            "TASKRAFT_NODE_NAME": self.name,
            "TASKRAFT_CLUSTER_ID": "taskraft-dev",
            "TASKRAFT_DATA_DIR": str(data / self.name),
            "TASKRAFT_LISTEN": self.client,
            "TASKRAFT_PEER_LISTEN": self.peer,
            "TASKRAFT_HTTP_LISTEN": self.http,
            "TASKRAFT_PEERS": peers,
            "TASKRAFT_AUTO_CREATE_TUBES": "true",
            "TASKRAFT_LOG_LEVEL": os.environ.get("TASKRAFT_LOG_LEVEL", "warning"),
        }


def dev_nodes(count: int, port: int) -> list[DevNode]:
    """Return the nodes of a development cluster."""
    return [DevNode(f"dev-{place}", port + PORT_STEP * place) for place in range(count)]


_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _Interrupted(Exception):
    """A signal asks the cluster to stop."""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _ignore_signals()
    raise _Interrupted


def _ignore_signals() -> None:
    """Ignore further signals of users and process groups, so that no node is left running."""
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def run_dev(
    count: int,
    data: Path | None,
    port: int,
    *,
    restarts: bool = True,
    has_console: bool = False,
) -> int:
    """Run a cluster until Ctrl-C; return the exit status: not 0 if nodes failed for good.

    A node that was removed from the cluster is left out, and the other nodes run on.

    Args:
        count: number of nodes.
        data: directory that keeps the data; None: a temporary one.
        port: client port of the first node.
        restarts: True: start a node again after its process exited. False: the other nodes run on.
        has_console: True: serve the web console too, if its distribution is installed.
    """
    nodes = dev_nodes(count, port)
    stored = _stored_nodes(data) if data is not None else []
    if stored and stored != sorted(node.name for node in nodes):
        _say(
            f"{data} has the data of {len(stored)} nodes; use --nodes {len(stored)} or other --data"
        )
        return EXIT_USAGE
    taken = _taken_address(nodes)
    if taken is not None:
        _say(f"{taken} is in use: another `taskraft dev` may run here; choose another --port")
        return 1
    for number in _STOP_SIGNALS:
        signal.signal(number, _interrupt)
    with ExitStack() as stack:
        place = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taskraft-")))
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_stop, processes)
        try:
            processes.extend(_start(node, nodes, place) for node in nodes)
            console = _start_console(nodes, port - 1) if has_console else None
            if console is not None:
                stack.callback(_stop, [console])
            if not _await_ready(nodes, processes):
                _say("a node did not start; its error message is above")
                return 1
            _tell(nodes, place, keeps=data is not None)
            if console is not None and console.stdout is not None:
                _say(console.stdout.readline().decode().strip() or "the console did not start")
            _say("ready; Ctrl-C stops the cluster")
            return _watch(nodes, processes, place, restarts=restarts)
        except _Interrupted:
            _say("stopping")
            return 0


def _stored_nodes(data: Path) -> list[str]:
    """Return the names of the nodes that have data in a directory."""
    return sorted(place.name for place in data.glob("dev-*") if any(place.iterdir()))


def _taken_address(nodes: Sequence[DevNode]) -> str | None:
    """Return an address of the cluster that another process already uses, or None."""
    for node in nodes:
        for address in (node.client, node.peer, node.http):
            with socket.socket() as probe:
                if probe.connect_ex((_HOST, int(address.rpartition(":")[2]))) == 0:
                    return address
    return None


def _start(node: DevNode, nodes: Sequence[DevNode], data: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "taskraft_service.process", "--lifeline"],
        env=node.environment(nodes, data),
        stdin=parent_watch.open_parent_pipe(),
        # Only this process receives Ctrl-C; it then stops the nodes in order.
        start_new_session=True,
    )


def _start_console(nodes: Sequence[DevNode], port: int) -> subprocess.Popen[bytes] | None:
    """Start the web console as a process of its own; return None if it is not installed.

    The server does not import the console. The console prints its address in its first line.
    """
    if not entry_points(group="taskraft.commands", name="console"):
        return None
    with socket.socket() as probe:
        is_free = probe.connect_ex((_HOST, port)) != 0
    target = ",".join(node.client for node in nodes)
    listen = f"{_HOST}:{port if is_free else 0}"
    arguments = ["--target", target, "--listen", listen, "--payloads", "full", "--lifeline"]
    return subprocess.Popen(  # noqa: S603 - the arguments come from this module
        [sys.executable, "-m", "taskraft", "console", *arguments],
        stdin=parent_watch.open_parent_pipe(),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _await_ready(nodes: Sequence[DevNode], processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    """Wait until all nodes are ready that the others do not refuse; False: a node did not start."""
    until = time.monotonic() + READY_SECONDS
    for node, process in zip(nodes, processes, strict=True):
        while process.poll() != EXIT_REFUSED and not _is_ready(node):
            ended = {one.poll() for one in processes} - {None}
            if time.monotonic() > until or not ended <= {EXIT_REFUSED}:
                return False
            time.sleep(0.05)
    return any(one.poll() is None for one in processes)


def _is_ready(node: DevNode) -> bool:
    try:
        with urllib.request.urlopen(f"http://{node.http}/readyz", timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _tell(nodes: Sequence[DevNode], data: Path, *, keeps: bool) -> None:
    for node in nodes:
        _say(f"{node.name}: gRPC {node.client}, metrics http://{node.http}/metrics")
    _say(f"data: {data}" + ("" if keeps else " (deleted when the cluster stops)"))
    _say(f"TASKRAFT_TARGET={','.join(node.client for node in nodes)}")


def _watch(
    nodes: Sequence[DevNode],
    processes: list[subprocess.Popen[bytes]],
    data: Path,
    *,
    restarts: bool,
) -> int:
    """Restart nodes whose processes exit; return the exit status when a restart is useless.

    A node that exits `FAILED_STARTS_MAX` times without having become ready cannot start. Without
    restarts, and after a removal, the other nodes run on until the last one has exited.
    """
    failed_starts = [0] * len(nodes)
    gone: set[int] = set()
    while len(gone) < len(nodes):
        for place, node in enumerate(nodes):
            status = processes[place].poll()
            if failed_starts[place] and status is None and _is_ready(node):
                failed_starts[place] = 0
                _say(f"{node.name} is ready again")
            if status is None or place in gone:
                continue
            told = f"{node.name} (process {processes[place].pid}) exited with status {status}"
            if not restarts or status == EXIT_REFUSED:
                gone.add(place)
                _say(f"{told}; {len(nodes) - len(gone)} of {len(nodes)} nodes run")
                continue
            if failed_starts[place] == FAILED_STARTS_MAX:
                _say(f"{told}; it does not start, so the cluster stops")
                return 1
            failed_starts[place] += 1
            _say(f"{told}; starting it again")
            processes[place] = _start(node, nodes, data)
        time.sleep(0.2)
    return 1


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    _ignore_signals()
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _say(line: str) -> None:
    print(line, flush=True)
