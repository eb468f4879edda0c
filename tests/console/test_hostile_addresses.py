"""Hostile texts in addresses: names, filters and searches are shown as text, and end no page."""

from urllib.parse import quote

import pytest

from tests.console.browser import opened
from tests.console.conftest import HOSTILE

pytestmark = pytest.mark.cluster
TEXTS = (*HOSTILE, "\0", "%", "\ufffd", "state = BURIED AND '", "x" * 8_000)
PLACES = (
    "/tasks?tube=billing&where={}",
    "/tasks?tube={}",
    "/tubes?q={}",
    "/tubes?kind={0}&only={0}&sort={0}&page={0}",
    "/tubes/{}",
    "/tubes/billing/tasks/{}",
    "/failures?tube={}",
    "/workers?q={}",
    "/workers/{}",
    "/workflows/{}",
    "/schedules/{0}?from={0}&to={0}",
    "/audit?principal={0}&call={0}&name={0}",
    "/bulk/{}",
    "/?from={0}&to={0}",
    "/go?q={}",
    "/tubes/billing?concurrency={0}&ttl={0}",
)
INVALID = "%ff%fe"
"""Bytes that are no UTF-8."""


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_address_gets_a_page(console, place):
    for text in (*(quote(each, safe="") for each in TEXTS), INVALID):
        answer = console.get(place.format(text), follow_redirects=True)
        assert answer.status_code < 500, (place, text, answer.text[:300])
        assert "Traceback" not in answer.text
        assert "<img src=x" not in answer.text
        assert "<script>alert" not in answer.text
        assert "<h1>" in answer.text, (place, text)


@pytest.mark.browser
def test_a_hostile_address_runs_nothing_in_a_browser(chromium, console):
    with opened(chromium, console.address) as page:
        for text in HOSTILE:
            for place in ("/tasks?tube=billing&where={}", "/tubes?q={}", "/go?q={}"):
                page.goto(console.address + place.format(quote(text, safe="")))
                assert page.locator("h1").is_visible()
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
