"""Call the nodes of a cluster, and decide what each answer says about the effect of the call."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from taskraft import errors
from taskraft._error_translation import from_rpc_error
from taskraft.v1 import error_pb2
from tools.local_cluster import LocalCluster
from tools.local_node import Node

CALL_SECONDS = 2.0
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 200),
)
UNKNOWN_REASONS = frozenset({"COMMIT_UNKNOWN", "INTERNAL_ERROR", "DEADLINE_EXCEEDED"})
"""Reasons that leave the effect open. All other reasons of the contract say "no effect"."""
NO_ANSWERS = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)
"""Status codes of calls that may not have reached a node."""
CONTRACT = frozenset(error_pb2.Error.Reason.keys())
FACTS = {
    "LEASE_STALE": "stale_token",
    "TASK_NOT_FOUND": "not_found",
    "SESSION_NOT_FOUND": "session_expired",
}
"""Reasons that state a fact about the task or the session, as histories name them."""


@dataclass(frozen=True)
class Answer:
    """The end of a call: ``ok`` with a response, or ``fail`` or ``info`` with an error."""

    outcome: str
    response: Any = None
    error: str = ""

    @property
    def is_ok(self) -> bool:
        """Return whether the call succeeded."""
        return self.outcome == "ok"


def refusal(reason: str) -> str:
    """Return a reason of the contract as histories name it."""
    return FACTS.get(reason, reason.lower())


def plain_channel(address: str) -> grpc.aio.Channel:
    """Return a channel without TLS to a node."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


class Channels:
    """One channel to each address, shared by all callers of a drill.

    Args:
        cluster: the nodes.
        connect: returns a channel to an address, with the credentials of the callers.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        connect: Callable[[str], grpc.aio.Channel] = plain_channel,
    ) -> None:
        self.cluster = cluster
        self._connect = connect
        self._open: dict[str, grpc.aio.Channel] = {}

    def to(self, node: Node) -> grpc.aio.Channel:
        """Return the channel to the present address of a node."""
        if node.address not in self._open:
            self._open[node.address] = self._connect(node.address)
        return self._open[node.address]

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._open.values():
            await channel.close()


class Caller:
    """Calls one node until it fails, then another one, like a client library."""

    def __init__(self, channels: Channels, draw: random.Random) -> None:
        self._channels = channels
        self._draw = draw
        self.node = draw.choice(channels.cluster.nodes)

    def channel(self) -> grpc.aio.Channel:
        """Return the channel to the present node."""
        return self._channels.to(self.node)

    def turn_away(self) -> None:
        """Use another node from now on."""
        others = [node for node in self._channels.cluster.nodes if node is not self.node]
        self.node = self._draw.choice(others or [self.node])

    async def call(
        self, stub: Any, method: str, request: Any, seconds: float = CALL_SECONDS
    ) -> Answer:
        """Send a request once, without a retry."""
        try:
            sent = getattr(stub(self.channel()), method)(request, timeout=seconds)
            return Answer("ok", await sent)
        except grpc.aio.AioRpcError as error:
            self.turn_away()
            return answer_of(error)


def answer_of(error: grpc.aio.AioRpcError) -> Answer:
    """Return whether a failed call had no effect, or an unknown effect."""
    translated = from_rpc_error(error)
    if isinstance(translated, errors.Unavailable) and translated.is_sent is False:
        return Answer("fail", error="not sent")
    reason = translated.reason
    is_stated = reason in CONTRACT and reason not in UNKNOWN_REASONS
    return Answer("fail" if is_stated else "info", error=refusal(reason or error.code().name))
