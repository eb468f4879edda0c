"""A metrics page is computed in small steps and once for concurrent scrapers."""

import asyncio
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from taskraft_service.process.metrics.page import PAGE_SECONDS, PIECE_SAMPLES, MetricsPage
from taskraft_service.process.metrics.tubes import SLICE_TUBES, TUBES_MAX, TubeCollector
from taskraft_service.queue.entities.tube_counters import STATE_COUNT
from taskraft_service.queue.limits import Limits


class Clock:
    """A clock that advances by ``step`` seconds with every reading."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def seconds(self):
        self.now += self.step
        return self.now


class Slow:
    """A source of metrics with ``steps`` points of interruption."""

    def __init__(self, steps=5):
        self.steps = steps
        self.scrapes = self.done = 0

    def slices(self):
        self.scrapes += 1
        for _ in range(self.steps):
            self.done += 1
            yield None
        yield GaugeMetricFamily("slow", "x", value=self.scrapes)


class Numbers:
    """The counters of a tube, which count their reads."""

    def __init__(self, queues, number):
        self.queues, self.number = queues, number

    def __iter__(self):
        self.queues.read += 1
        return iter([self.number] + [0] * (STATE_COUNT - 1))

    def __getitem__(self, state):
        return self.number if state == 0 else 0


class Queues:
    """Many tubes; counts how many of them are read."""

    def __init__(self, tubes):
        self.read = 0
        self.counted = {f"t{number}": Numbers(self, number) for number in range(tubes)}

    def task_counts(self):
        return self.counted

    def quarantined_tubes(self):
        return []

    def total_statistics(self, names):
        assert names is None
        states = dict.fromkeys(range(STATE_COUNT + 1), 10**9)
        return SimpleNamespace(states=states, oldest_ready_ms=0)

    def oldest_ready_ms(self, names):
        assert len(names) <= SLICE_TUBES
        return {}

    def statistics(self, names):
        self.read += len(names)
        return []


def test_a_step_reads_at_most_some_hundred_tubes():
    queues = Queues(Limits().tubes_max)
    steps = []
    before = 0
    for _ in TubeCollector(queues, int).slices():
        steps.append(queues.read - before)
        before = queues.read
    assert max(steps) <= SLICE_TUBES + TUBES_MAX
    assert sum(steps) >= Limits().tubes_max


async def test_other_work_runs_between_the_steps():
    page = MetricsPage(CollectorRegistry(), (Slow(5),), Clock(step=1.0).seconds)
    turns = 0
    reading = asyncio.ensure_future(page.read())
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5


async def test_short_steps_share_a_turn_of_the_loop():
    source = Slow(1_000)
    page = MetricsPage(CollectorRegistry(), (source,), Clock().seconds)
    reading = asyncio.ensure_future(page.read())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert source.done == 1_000
    await reading


async def test_concurrent_scrapers_share_one_page():
    source, clock = Slow(), Clock()
    page = MetricsPage(CollectorRegistry(), (source,), clock.seconds)
    pages = await asyncio.gather(*(page.read() for _ in range(3)))
    assert len({*pages}) == source.scrapes == 1
    clock.now += PAGE_SECONDS - 0.1
    assert await page.read() == pages[0]
    clock.now += 0.2
    assert await page.read() != pages[0]
    assert source.scrapes == 2


async def test_a_disconnected_scraper_does_not_stop_the_page_of_other_scrapers():
    source = Slow(50)
    page = MetricsPage(CollectorRegistry(), (source,), Clock(step=1.0).seconds)
    first, second = asyncio.ensure_future(page.read()), asyncio.ensure_future(page.read())
    await asyncio.sleep(0)
    first.cancel()
    assert b"slow 1.0" in await second
    assert source.scrapes == 1


async def test_a_page_that_failed_is_computed_again():
    class Broken(Slow):
        def slices(self):
            if not self.scrapes:
                self.scrapes += 1
                raise KeyError("tube")
            yield from super().slices()

    page = MetricsPage(CollectorRegistry(), (Broken(),), Clock().seconds)
    with pytest.raises(KeyError):
        await page.read()
    assert b"slow 2.0" in await page.read()


async def test_a_page_computed_in_steps_equals_the_page_computed_at_once():
    registry = CollectorRegistry()
    for count in (0, 1, PIECE_SAMPLES, 3 * PIECE_SAMPLES + 1):
        gauge = Gauge(f"gauge{count}", 'a "gauge"\nof two lines', ["place"], registry=registry)
        calls = Counter(f"calls{count}", "calls", ["place"], registry=registry)
        for place in range(count):
            gauge.labels(f'"{place}\n').set(place)
            calls.labels(str(place)).inc()
    Histogram("times", "times", registry=registry, buckets=range(2 * PIECE_SAMPLES)).observe(3)
    whole = generate_latest(registry).decode()
    page = (await MetricsPage(registry, (), Clock().seconds).read()).decode()
    assert samples_of(page) == samples_of(whole)


class Family(Collector):
    def __init__(self, family):
        self.family = family

    def collect(self):
        return [self.family]


async def test_a_large_histogram_is_computed_in_steps():
    family = HistogramMetricFamily("times", "times", labels=("tube",))
    for tube in range(PIECE_SAMPLES):
        family.add_metric((str(tube),), [("1", tube), ("+Inf", tube + 1)], tube)
    registry = CollectorRegistry()
    registry.register(Family(family))
    page = MetricsPage(registry, (), Clock().seconds)
    assert len(list(page._steps())) == len(family.samples) // PIECE_SAMPLES
    assert samples_of((await page.read()).decode()) == samples_of(
        generate_latest(registry).decode()
    )


def samples_of(text):
    return {
        (family.name, family.type, family.documentation): sorted(map(str, family.samples))
        for family in text_string_to_metric_families(text)
    }
