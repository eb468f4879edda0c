"""Choose the next node to call: the known leader, else the nodes in turn.

A leader hint can be outdated, or name an address that is not reachable from this client. After a
failure, the selector drops the hint and continues with the next node of the target. It ignores
hints to an unreachable node for `UNREACHABLE_SECONDS`; during this time, followers forward the
calls.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from taskraft._arguments import wrong_type, wrong_value
from taskraft._clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("taskraft")

FailoverHook: TypeAlias = Callable[[str, str], object]
"""Called with the addresses of the previous leader and of the new leader."""

DEFAULT_TARGET: Final = "127.0.0.1:7401"
TARGET_VARIABLE: Final = "TASKRAFT_TARGET"
EXPECTED: Final = '"host:port" or a comma-separated list of these'
PORT_MAX: Final = 65_535
LEADER_KEY: Final = "x-taskraft-leader"
"""Metadata key of every response: address of the leader as the answering node knows it."""
UNREACHABLE_SECONDS: Final = 5.0
"""Time for which leader hints to an unreachable node are ignored, in seconds."""


def addresses_from(target: str | None) -> tuple[str, ...]:
    """Return the addresses of a target; default: TASKRAFT_TARGET, else 127.0.0.1:7401.

    Raises:
        ValueError: an address has no port.
    """
    if target is not None:
        return addresses_of(target, "target")
    return addresses_of(os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET, TARGET_VARIABLE)


def addresses_of(target: str, name: str) -> tuple[str, ...]:
    """Split a target such as ``"a:7401,b:7401"``; errors call the target `name`.

    Raises:
        ValueError: an address has no port from 1 to 65 535.
    """
    if not isinstance(target, str):
        raise wrong_type(name, EXPECTED, target)
    addresses = tuple(part.strip() for part in target.split(",") if part.strip())
    for address in addresses:
        _, colon, port = address.rpartition(":")
        is_port = colon and port.isascii() and port.isdigit() and 0 < int(port[:6]) <= PORT_MAX
        if not is_port or address.startswith(("http://", "https://")):
            raise wrong_value(name, EXPECTED, target)
    if not addresses:
        raise wrong_value(name, EXPECTED, target)
    return addresses


class NodeSelector:
    """Tracks the leader and the next node in turn; not thread-safe.

    Attributes:
        failovers: number of changes from one leader to another.
    """

    def __init__(self, addresses: Sequence[str], on_failover: FailoverHook | None = None) -> None:
        assert addresses
        self.addresses: Final = tuple(addresses)
        self.failovers = 0
        self._on_failover = on_failover
        self._leader: str | None = None
        self._last_leader: str | None = None
        self._turn = 0
        self._unreachable_until: dict[str, float] = {}

    @property
    def leader(self) -> str | None:
        """Address of the leader; None if unknown."""
        return self._leader

    def next_address(self) -> str:
        """Return the address of the node to call next.

        Without a known leader, a node that was unreachable in the last `UNREACHABLE_SECONDS` is
        chosen only if all nodes were unreachable in this time.
        """
        if self._leader is not None:
            return self._leader
        first = self._turn % len(self.addresses)
        in_turn = (*self.addresses[first:], *self.addresses[:first])
        return next((each for each in in_turn if self._may_be_reachable(each)), in_turn[0])

    def _may_be_reachable(self, address: str) -> bool:
        return monotonic() >= self._unreachable_until.get(address, 0.0)

    def set_leader_hint(self, address: str) -> None:
        """Store the address of the leader; an empty address is ignored."""
        if not address or address == self._leader:
            return
        if self._may_be_reachable(address):
            self._unreachable_until.pop(address, None)
            self._leader = address
            previous, self._last_leader = self._last_leader, address
            if previous is not None and previous != address:
                self._report_failover(previous, address)

    def _report_failover(self, previous: str, address: str) -> None:
        self.failovers += 1
        log.info("the leader is %s now, after %s", address, previous)
        if self._on_failover is None:
            return
        try:
            self._on_failover(previous, address)
        except Exception:
            log.exception("the function on_failover failed")

    def report_answer(self, address: str) -> None:
        """Record that a node has answered and is therefore reachable."""
        self._unreachable_until.pop(address, None)

    def report_failure(self, address: str, *, is_unreachable: bool = False) -> None:
        """Drop the leader hint if it names `address`, and continue with the next node."""
        if is_unreachable:
            self._unreachable_until[address] = monotonic() + UNREACHABLE_SECONDS
        if self._leader == address:
            self._leader = None
        if self.addresses[self._turn % len(self.addresses)] == address:
            self._turn += 1
