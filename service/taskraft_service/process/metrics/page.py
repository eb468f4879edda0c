"""Render all metrics in slices, so that a scrape never stops the event loop.

Concurrent scrapes get the same page, and a page is cached for a short time. The work of scrapes is
therefore bounded, whatever the number of scrapers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

SLICE_SECONDS: Final = 0.001
"""Maximum time of one slice; other work of the event loop runs between two slices."""
PAGE_SECONDS: Final = 0.25
"""Minimum time for which a page is cached. Scrapers usually scrape every 15 to 60 s."""
REST_FACTOR: Final = 4
"""A page is cached for at least this multiple of its rendering time, so that scrapes use at most a
fifth of the time."""
PIECE_SAMPLES: Final = 50
"""Maximum number of samples that are rendered in one step, which takes some hundred
microseconds."""
_SPLIT_TYPES: Final = frozenset({"counter", "gauge"})
_CREATED: Final = "_created"
"""Suffix of samples that the renderer writes after the other samples, with separate HELP and TYPE
lines."""
_HEAD_LINES: Final = 2
"""Number of lines before the samples of a metric: HELP and TYPE."""


class SlicedCollector(Protocol):
    """A source of metrics that may need more time than one slice."""

    def slices(self) -> Iterator[Metric | None]:
        """Yield the metrics, and None at each point where the work may be interrupted."""


@dataclass(slots=True, frozen=True)
class _OneMetric(Collector):
    """One metric in the form that the renderer expects."""

    metric: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.metric


class MetricsPage:
    """The page /metrics.

    Args:
        registry: sources of metrics that take little time.
        sliced: sources that are collected in slices.
        seconds: clock that measures slices and the age of a page.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        sliced: Sequence[SlicedCollector],
        seconds: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._sliced = sliced
        self._seconds = seconds
        self._rendering: asyncio.Task[bytes] | None = None
        self._fresh_until = 0.0

    async def read(self) -> bytes:
        """Return the page in the Prometheus text format; the page may come from the cache."""
        rendering = self._rendering
        if rendering is None or (rendering.done() and self._seconds() >= self._fresh_until):
            rendering = self._rendering = asyncio.ensure_future(self._render())
        # A scraper that disconnects does not stop the rendering for other scrapers.
        return await asyncio.shield(rendering)

    async def _render(self) -> bytes:
        parts: list[bytes] = []
        began = first = self._seconds()
        for part in self._steps():
            parts.append(part)
            if self._seconds() - began >= SLICE_SECONDS:
                await asyncio.sleep(0)
                began = self._seconds()
        ended = self._seconds()
        self._fresh_until = ended + max(PAGE_SECONDS, REST_FACTOR * (ended - first))
        return b"".join(parts)

    def _steps(self) -> Iterator[bytes]:
        """Yield the parts of the page; each step takes at most about a millisecond."""
        for metric in self._registry.collect():
            yield from _rendered(metric)
        for collector in self._sliced:
            for found in collector.slices():
                if found is None:
                    yield b""
                else:
                    yield from _rendered(found)


def _rendered(metric: Metric) -> Iterator[bytes]:
    """Yield the text of a metric in pieces."""
    samples = metric.samples
    has_others = any(sample.name.endswith(_CREATED) for sample in samples)
    if metric.type not in _SPLIT_TYPES or has_others or len(samples) <= PIECE_SAMPLES:
        yield generate_latest(_OneMetric(metric))
        return
    for start in range(0, len(samples), PIECE_SAMPLES):
        piece = Metric(metric.name, metric.documentation, metric.type)
        piece.samples = samples[start : start + PIECE_SAMPLES]
        text = generate_latest(_OneMetric(piece))
        yield text if start == 0 else text.split(b"\n", _HEAD_LINES)[_HEAD_LINES]
