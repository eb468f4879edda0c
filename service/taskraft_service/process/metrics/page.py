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
from prometheus_client.openmetrics import exposition as openmetrics
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
_SPLIT_TYPES: Final = frozenset({"counter", "gauge", "histogram"})
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


@dataclass(slots=True, frozen=True)
class PageForm:
    """A format of the page."""

    content_type: str
    render: Callable[[Collector], bytes]
    """Returns the text of one metric."""
    end: bytes = b""
    """Text after the last metric."""


_EOF: Final = b"# EOF\n"


def _as_open_metrics(collector: Collector) -> bytes:
    text: bytes = openmetrics.generate_latest(collector)  # type: ignore[no-untyped-call]  # the library types only some functions
    return text.removesuffix(_EOF)


TEXT_FORM: Final = PageForm("text/plain; version=0.0.4; charset=utf-8", generate_latest)
OPEN_METRICS_FORM: Final = PageForm(openmetrics.CONTENT_TYPE_LATEST, _as_open_metrics, _EOF)
"""OpenMetrics, the only format with exemplars."""


class MetricsPage:
    """The page /metrics.

    Args:
        registry: sources of metrics that take little time.
        sliced: sources that are collected in slices.
        seconds: clock that measures slices and the age of a page.
        form: format of the page.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        sliced: Sequence[SlicedCollector],
        seconds: Callable[[], float],
        form: PageForm = TEXT_FORM,
    ) -> None:
        self.form = form
        self._registry = registry
        self._sliced = sliced
        self._seconds = seconds
        self._rendering: asyncio.Task[bytes] | None = None
        self._fresh_until = 0.0

    async def read(self) -> bytes:
        """Return the page, which may come from the cache."""
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
        return b"".join((*parts, self.form.end))

    def _steps(self) -> Iterator[bytes]:
        """Yield the parts of the page; each step takes at most about a millisecond."""
        for metric in self._registry.collect():
            yield from _rendered(metric, self.form.render)
        for collector in self._sliced:
            for found in collector.slices():
                if found is None:
                    yield b""
                else:
                    yield from _rendered(found, self.form.render)


def _rendered(metric: Metric, render: Callable[[Collector], bytes]) -> Iterator[bytes]:
    """Yield the text of a metric in pieces."""
    samples = metric.samples
    has_others = any(sample.name.endswith(_CREATED) for sample in samples)
    if metric.type not in _SPLIT_TYPES or has_others or len(samples) <= PIECE_SAMPLES:
        yield render(_OneMetric(metric))
        return
    for start in range(0, len(samples), PIECE_SAMPLES):
        piece = Metric(metric.name, metric.documentation, metric.type)
        piece.samples = samples[start : start + PIECE_SAMPLES]
        text = render(_OneMetric(piece))
        yield text if start == 0 else text.split(b"\n", _HEAD_LINES)[_HEAD_LINES]
