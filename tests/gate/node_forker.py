"""Fork nodes from a process with all imports done: ``python -m tests.gate.node_forker FD``.

The imports take two thirds of the CPU time of a start. FD is a Unix socket to the test process.
Each request is one message: a JSON object with ``module``, ``arguments``, ``environment`` and
``folder``, and three descriptors: standard input, output, and a pipe for the exit status. The
answer is the process id of the node. When the node ends, the pipe gets its exit status as a text; a
negative number is a signal, as in ``subprocess``. The forker ends at the end-of-file of the socket.

The forker runs no thread, loads no plugin of a node and opens no file, so its forks are like new
processes.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import socket
import sys
from pathlib import Path

gc.disable()

import taskraft_service.process.main  # noqa: E402, F401 - loads what a node needs
import tests.failpoints.failing_storage  # noqa: E402, F401 - loads what ``tests.failpoints`` needs

REQUEST_BYTES_MAX = 1 << 20
"""Maximum size of a request. The environment has most of the bytes."""
DESCRIPTORS = 3


def become_node(request: dict, descriptors: list[int]) -> None:
    """Turn a fork into the node of a request, up to the first line of its module."""
    os.setsid()
    stdin, output, _status = descriptors
    os.dup2(stdin, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["module"], *request["arguments"]]


def fork_until_closed(connection: socket.socket) -> str | None:
    """Fork a node for each request; return its module in the fork, and None in the forker."""
    running: dict[int, tuple[int, int]] = {}  # by descriptor of a process: its id, and its pipe
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not connection:
                    pid, status = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, waited = os.waitpid(pid, 0)
                    os.write(status, str(os.waitstatus_to_exitcode(waited)).encode())
                    os.close(status)
                    continue
                message, descriptors, _, _ = socket.recv_fds(
                    connection, REQUEST_BYTES_MAX, DESCRIPTORS
                )
                if not message:
                    return None
                request = json.loads(message)
                pid = os.fork()
                if pid == 0:
                    become_node(request, descriptors)
                    return request["module"]
                stdin, output, status = descriptors
                os.close(stdin)
                os.close(output)
                process = os.pidfd_open(pid)
                running[process] = pid, status
                selector.register(process, selectors.EVENT_READ)
                connection.send(str(pid).encode())


if __name__ == "__main__":
    gc.freeze()
    module = fork_until_closed(socket.socket(fileno=int(sys.argv[1])))
    if module is not None:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
