"""Metrics of the native edge: what it holds, and how often each limit has acted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_service.api.rpc.rpc_server import RpcServer

_IN_USE: Final = {
    "taskraft_edge_connections": "Open connections of clients.",
    "taskraft_edge_calls": "Calls of clients in progress.",
    "taskraft_edge_unfinished_small_bytes": "Bytes of unfinished messages of at most 64 KiB.",
    "taskraft_edge_unfinished_bytes": "Bytes of larger unfinished messages, which handlers wait for.",
}


class EdgeCollector(Collector):
    """Reads the counts of the server of the client port at each scrape.

    grpc.aio does not count, so there are no metrics then.

    Args:
        server: the server of the client port.
    """

    def __init__(self, server: RpcServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the native edge."""
        counts = self._server.counts()
        if counts is None:
            return
        for name, text in _IN_USE.items():
            number = counts.in_use[name.removeprefix("taskraft_edge_")]
            yield GaugeMetricFamily(name, text, value=number)
        limited = CounterMetricFamily(
            "taskraft_edge_limited",
            "Connections, calls and messages that a limit of the native edge stopped.",
            labels=("limit",),
        )
        for limit, number in sorted(counts.limited.items()):
            limited.add_metric((limit,), number)
        yield limited
