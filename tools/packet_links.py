"""Connect node processes in network namespaces of their own; needs root and TUN devices.

Unlike a proxy, this network loses, delays and reorders packets, so that the nodes meet the
behaviour of TCP itself. Clients on this machine reach all nodes over links without faults, until
``cut_clients``.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Final

from tools.local_cluster import LocalCluster
from tools.peer_links import Quality

TUNSETIFF: Final = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x1, 0x1000
CLONE_NEWNET: Final = 0x40000000
MTU_BYTES: Final = 9_000
"""Maximum packet size; larger than usual, because the router in Python has a cost per packet."""


CLIENTS: Final = "clients"
"""Name of this machine as an end of links."""


class NoNamespaces(Exception):
    """Network namespaces cannot be created here; the message says why."""


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S607 - the path differs between systems
    except FileNotFoundError:
        raise NoNamespaces("there is no ip command") from None
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(words)}: {done.stderr.strip()}")


class PacketLinks:
    """The network of a cluster that has not been started yet.

    Raises:
        NoNamespaces: without the rights of root, TUN devices or the command ``ip``.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._names: Final = [node.name for node in cluster.nodes]
        self._router: subprocess.Popen[str] | None = None
        self._stack = ExitStack()
        self._devices: list[tuple[int, str]] = []
        subnet = f"10.{200 + os.getpid() // 250 % 50}.{os.getpid() % 250}"
        tag = f"tr{os.getpid() % 100_000}"
        try:
            moved = {}
            for number, node in enumerate(cluster.nodes, start=1):
                space, address = f"{tag}-{number}", f"{subnet}.{number}"
                _ip("netns", "add", space)
                self._stack.callback(_ip, "netns", "del", space)
                self._add_device(tag, address, space)
                node.command_prefix = ("ip", "netns", "exec", space)
                for field in ("address", "peer_address", "http_address"):
                    before = getattr(node, field)
                    moved[before] = f"{address}:{before.rpartition(':')[2]}"
                    setattr(node, field, moved[before])
            self._add_device(tag, f"{subnet}.254", None)
        except BaseException:
            self._stack.close()
            raise
        for node in cluster.nodes:
            settings = dict(node.environment)
            for name, (before, after) in itertools.product(settings, moved.items()):
                settings[name] = settings[name].replace(before, after)
            node.environment = settings

    def _add_device(self, name: str, address: str, space: str | None) -> None:
        """Create a TUN device with an address, in a namespace or on this machine."""
        descriptor = _open_device(name, space)
        self._stack.callback(os.close, descriptor)
        where = ("-n", space) if space is not None else ()
        _ip(*where, "address", "add", f"{address}/24", "dev", name)
        _ip(*where, "link", "set", name, "mtu", str(MTU_BYTES), "up")
        if space is not None:
            _ip(*where, "link", "set", "lo", "up")
        self._devices.append((descriptor, address))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names of all ordered pairs of nodes: sender, receiver."""
        return list(itertools.permutations(self._names, 2))

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Drop all packets from the first to the second node of each pair."""
        self._tell(pairs, is_cut=True)

    def cut_clients(self, node: str) -> None:
        """Drop all packets between a node and the clients on this machine."""
        self._tell([(node, CLIENTS), (CLIENTS, node)], is_cut=True)

    def change(self, pairs: Iterable[tuple[str, str]], quality: Quality) -> None:
        """Set the properties of the links of these pairs."""
        self._tell(pairs, **asdict(quality))

    def heal(self) -> None:
        """Let all links deliver again, without faults."""
        ends = (*self._names, CLIENTS)
        self._tell(itertools.permutations(ends, 2), is_cut=False, **asdict(Quality()))

    def _tell(self, pairs: Iterable[tuple[str, str]], **fields: float) -> None:
        assert self._router is not None, "not entered"
        assert self._router.stdin is not None
        number = [*self._names, CLIENTS].index
        command = {"pairs": [(number(one), number(other)) for one, other in pairs], **fields}
        self._router.stdin.write(json.dumps(command) + "\n")
        self._router.stdin.flush()

    def __enter__(self) -> PacketLinks:
        """Start the network."""
        descriptors = [descriptor for descriptor, _ in self._devices]
        self._router = subprocess.Popen(
            [sys.executable, "-m", "tools.packet_router", json.dumps(self._devices)],
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the network and remove the namespaces."""
        assert self._router is not None
        assert self._router.stdin is not None
        self._router.stdin.close()
        self._router.wait()
        self._stack.close()


def _open_device(name: str, space: str | None) -> int:
    """Create a TUN device and return its descriptor, which every namespace can use."""
    opened: list[int | OSError] = []

    def create() -> None:
        try:
            if space is not None:
                _enter(Path("/var/run/netns") / space)
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            request = struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
            fcntl.ioctl(descriptor, TUNSETIFF, request)
            opened.append(descriptor)
        except OSError as error:
            opened.append(error)

    # A thread of its own, because it stays in the namespace.
    thread = threading.Thread(target=create)
    thread.start()
    thread.join()
    (result,) = opened
    if isinstance(result, OSError):
        raise NoNamespaces(f"no TUN device: {result}") from result
    return result


def _enter(path: Path) -> None:
    """Move this thread into a network namespace."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
