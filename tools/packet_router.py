"""Carry IP packets between TUN devices; cut, delay, reorder and drop them on command.

``tools/packet_links.py`` starts this program. Its argument is a JSON list with the descriptor and
the address of each device. Each line on stdin changes some links: ``pairs`` of the numbers of two
devices, ``is_cut``, and the fields of a quality. The program ends with stdin.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import selectors
import socket
import sys
import time
from typing import Any, Final

PACKET_BYTES_MAX: Final = 1 << 16
BURST: Final = 64
"""Maximum number of packets that are read from one device before the others get a turn."""
QUEUE_SECONDS_MAX: Final = 0.5
"""Maximum time for which a packet waits for a narrow link, in seconds. A packet that would wait
longer is dropped.
"""
DESTINATION: Final = slice(16, 20)
"""Bytes of the destination address in an IPv4 packet."""


class PacketLink:
    """One direction between two devices."""

    def __init__(self) -> None:
        self.is_cut = False
        self.bits_per_second = 1e9
        self.delay_seconds = self.jitter_seconds = self.loss = 0.0
        self._free_at = 0.0

    def due(self, packet: bytes, now: float) -> float | None:
        """Return the time at which a packet arrives; None if the packet is lost.

        The jitter is drawn for each packet, so packets overtake each other.
        """
        if self.is_cut or (self.loss and random.random() < self.loss):  # noqa: S311 - no secret
            return None
        if self._free_at > now + QUEUE_SECONDS_MAX:
            return None
        self._free_at = max(self._free_at, now) + len(packet) * 8 / self.bits_per_second
        return self._free_at + self.delay_seconds + self.jitter_seconds * random.random()  # noqa: S311 - jitter is no secret


class PacketRouter:
    """Forwards packets by their destination."""

    def __init__(self, devices: list[tuple[int, str]]) -> None:
        self._devices = [descriptor for descriptor, _ in devices]
        self._numbers = {
            socket.inet_aton(address): number for number, (_, address) in enumerate(devices)
        }
        count = range(len(devices))
        self._links = {pair: PacketLink() for pair in itertools.product(count, count)}
        self._coming: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._commands = b""

    def change(self, command: dict[str, Any]) -> None:
        """Change links as a command from stdin describes."""
        for one, other in command.pop("pairs"):
            for name, value in command.items():
                setattr(self._links[one, other], name, value)

    def run(self) -> None:
        """Forward packets until stdin ends."""
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        for number, descriptor in enumerate(self._devices):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ, number)
        while True:
            now = time.monotonic()
            wait = max(0.0, self._coming[0][0] - now) if self._coming else None
            for key, _ in selector.select(wait):
                if key.data is not None:
                    self._receive(key.data)
                elif not self._read_commands():
                    return
            self._deliver()

    def _read_commands(self) -> bool:
        """Execute the lines that have arrived; return False at the end of stdin."""
        text = os.read(0, PACKET_BYTES_MAX)
        *lines, self._commands = (self._commands + text).split(b"\n")
        for line in lines:
            self.change(json.loads(line))
        return bool(text)

    def _receive(self, sender: int) -> None:
        now = time.monotonic()
        for _ in range(BURST):
            try:
                packet = os.read(self._devices[sender], PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            receiver = self._numbers.get(packet[DESTINATION])
            if receiver is None:
                continue  # IPv6 and multicast of the kernel
            due = self._links[sender, receiver].due(packet, now)
            if due is not None:
                heapq.heappush(self._coming, (due, next(self._order), receiver, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._coming and self._coming[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(self._coming)
            os.write(self._devices[receiver], packet)


def main() -> None:
    """Forward packets between the devices that the argument names."""
    PacketRouter([(descriptor, address) for descriptor, address in json.loads(sys.argv[1])]).run()


if __name__ == "__main__":
    main()
