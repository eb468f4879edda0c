"""The span of time in the address of a page."""

from types import SimpleNamespace

import pytest

from taskraft_console.data.shared_reads import Reading
from taskraft_console.pages.page import FormRefused
from taskraft_console.pages.time_window import HOUR_MS, shown_window, time_window_of

NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z


class Visit:
    """A visit of an address, with the time of the cluster."""

    def __init__(self, **query):
        self.query = {name.strip("_"): value for name, value in query.items()}
        self.cluster = self
        self.failure = ""

    async def total(self):
        return Reading(SimpleNamespace(now_ms=NOW_MS), 0.0)

    @staticmethod
    def value(reading):
        return reading.value


@pytest.mark.parametrize(
    ("query", "begin_ms", "end_ms", "is_day"),
    [
        ({"from_": "-30m"}, NOW_MS - HOUR_MS // 2, NOW_MS, False),
        ({"from_": "-2h", "to": "-1h"}, NOW_MS - 3 * HOUR_MS, NOW_MS - HOUR_MS, True),
        ({"to": "2026-09-21T14:00:00Z"}, NOW_MS - 800_000 - HOUR_MS, NOW_MS - 800_000, True),
        (
            {"from_": "2026-09-21T16:00:00+02:00", "to": "2026-09-21T14:10"},
            NOW_MS - 800_000,
            NOW_MS - 200_000,
            False,
        ),
    ],
)
async def test_an_address_names_a_span(query, begin_ms, end_ms, is_day):
    window = await time_window_of(Visit(**query))
    assert (window.begin_ms, window.end_ms, window.is_day) == (begin_ms, end_ms, is_day)
    assert [window.has(at) for at in (begin_ms - 1, begin_ms, end_ms, end_ms + 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert window.query == {name.strip("_"): value for name, value in query.items()}


@pytest.mark.parametrize(("asked", "is_day"), [("24h", True), ("1h", False), ("x", False)])
async def test_a_span_without_ends_is_the_recent_past(asked, is_day):
    window = await time_window_of(Visit(window=asked))
    assert window.is_day == is_day
    assert window.has(0)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"from_": "yesterday"}, "is no time such as"),
        ({"from_": "-1 fortnight"}, "is no time such as -1h"),
        ({"to": "0001-01-01T00:00:00Z"}, "between the years"),
        ({"from_": "2026-09-21T14:00Z", "to": "2026-09-21T13:00Z"}, "ends before it begins"),
    ],
)
async def test_a_span_that_is_none_is_refused_with_a_sentence(query, said):
    visit = Visit(**query)
    with pytest.raises(FormRefused, match=said):
        await time_window_of(visit)
    assert (await shown_window(visit)).query == {"window": "1h"}
    assert said in visit.failure
