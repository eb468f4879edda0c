"""Metrics of the native edge: what it holds, and how often each limit has acted."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_service.api.rpc.rpc_server import RpcServer


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
        for name, text, counted in (
            ("taskraft_edge_connections", "Open connections of clients.", "connections"),
            ("taskraft_edge_calls", "Calls of clients in progress.", "calls"),
            (
                "taskraft_edge_unfinished_unknown_bytes",
                "Bytes of unfinished messages of connections without an authenticated call.",
                "unfinished_unknown_bytes",
            ),
            (
                "taskraft_edge_unfinished_small_bytes",
                "Bytes of unfinished messages of at most 64 KiB of other connections.",
                "unfinished_small_bytes",
            ),
            (
                "taskraft_edge_unfinished_bytes",
                "Bytes of larger unfinished messages, for which handlers wait.",
                "unfinished_bytes",
            ),
        ):
            yield GaugeMetricFamily(name, text, value=counts.in_use[counted])
        limited = CounterMetricFamily(
            "taskraft_edge_limited",
            "Connections, calls and messages that a limit of the native edge stopped.",
            labels=("limit",),
        )
        for limit, number in sorted(counts.limited.items()):
            limited.add_metric((limit,), number)
        yield limited
