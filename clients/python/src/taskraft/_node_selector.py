"""Choose the node to ask next: the leader where it is known, any other node where it is not.

A hint is only a hint: it comes with an answer and may be old before it arrives, or name an address
that cannot be reached from here. A node that was no help loses the hint and its turn, and the
others are asked in order; hints to one that could not be reached are not believed for a while,
since followers forward.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from taskraft._arguments import wrong_type, wrong_value

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_TARGET: Final = "127.0.0.1:7401"
TARGET_VARIABLE: Final = "TASKRAFT_TARGET"
EXPECTED: Final = '"host:port", or several with commas between them'
LEADER_KEY: Final = "x-taskraft-leader"
"""Metadata of every answer: the address of the leader as the answering node knows it."""
UNREACHABLE_SECONDS: Final = 5.0
"""How long hints to a node that could not be reached are not believed."""


def addresses_from(target: str | None) -> tuple[str, ...]:
    """Return the addresses of a target; absent those of TASKRAFT_TARGET, or a development cluster.

    Raises:
        ValueError: An address has no port.
    """
    if target is not None:
        return addresses_of(target, "target")
    return addresses_of(os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET, TARGET_VARIABLE)


def addresses_of(target: str, name: str) -> tuple[str, ...]:
    """Split a target such as ``"a:7401,b:7401"`` into addresses; `name` says where it is from.

    Raises:
        ValueError: An address has no port.
    """
    if not isinstance(target, str):
        raise wrong_type(name, EXPECTED, target)
    addresses = tuple(part.strip() for part in target.split(",") if part.strip())
    for address in addresses:
        _, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or address.startswith(("http://", "https://")):
            raise wrong_value(name, EXPECTED, target)
    if not addresses:
        raise wrong_value(name, EXPECTED, target)
    return addresses


class NodeSelector:
    """Remember who leads and whose turn it is; used by one thread at a time."""

    def __init__(self, addresses: Sequence[str]) -> None:
        assert addresses
        self.addresses: Final = tuple(addresses)
        self._leader: str | None = None
        self._turn = 0
        self._unreachable_until: dict[str, float] = {}

    @property
    def leader(self) -> str | None:
        """Address of the leader as far as it is known."""
        return self._leader

    def next_address(self) -> str:
        """Return the node to ask now."""
        if self._leader is not None:
            return self._leader
        return self.addresses[self._turn % len(self.addresses)]

    def set_leader_hint(self, address: str) -> None:
        """Note who leads; an empty address says nothing."""
        if not address or address == self._leader:
            return
        if time.monotonic() >= self._unreachable_until.get(address, 0.0):
            self._unreachable_until.pop(address, None)
            self._leader = address

    def report_failure(self, address: str, *, is_unreachable: bool = False) -> None:
        """Drop the leader hint if `address` had it, and advance to the next node in the list."""
        if is_unreachable:
            self._unreachable_until[address] = time.monotonic() + UNREACHABLE_SECONDS
        if self._leader == address:
            self._leader = None
        if self.addresses[self._turn % len(self.addresses)] == address:
            self._turn += 1
