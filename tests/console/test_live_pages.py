"""The stream of a browser: several pages, only changed contents, and its end."""

import asyncio
import json

import pytest
from starlette.routing import Route

from taskraft_console.live_pages import (
    PAGES_MAX,
    LiveContent,
    LivePage,
    LivePagesRefused,
    LiveStreams,
    live_pages_of,
)
from tests.turns import turns_until


async def handler(_):
    raise AssertionError("the test renders the pages itself")


ROUTES = [(Route(path, handler), handler) for path in ("/", "/tubes", "/workflows/{group:path}")]


def page_at(address):
    return LivePage(address, handler, {}, {})


def sent(event):
    content = json.loads(event["data"])
    return content["page"], content["html"]


def test_an_address_has_the_parts_and_the_query_of_its_page():
    pages = live_pages_of(["/workflows/a%2520%2Fb?state=x&q=1%202", "/tubes", "/tubes"], ROUTES)
    assert [page.address for page in pages] == ["/workflows/a%2520%2Fb?state=x&q=1%202", "/tubes"]
    assert pages[0].path == {"group": "a%20/b"}
    assert pages[0].query == {"state": "x", "q": "1 2"}


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ([], "1 to 16 pages, not 0"),
        ([f"/tubes?page={number}" for number in range(PAGES_MAX + 1)], "not 17"),
        (["/tubes", "/settings"], "no page '/settings'"),
        (["//other.example/tubes"], "no page"),
        (["tubes"], "no page"),
    ],
)
def test_a_stream_of_other_pages_is_refused(addresses, said):
    with pytest.raises(LivePagesRefused, match=said):
        live_pages_of(addresses, ROUTES)


async def test_a_page_that_is_not_answered_does_not_hold_up_another():
    silent = asyncio.Event()

    async def render(page):
        if page.address == "/silent":
            await silent.wait()
        return LiveContent(page.address, None)

    streams = LiveStreams(asyncio.Event())
    events = streams.events([page_at("/silent"), page_at("/quick")], render)
    assert sent(await anext(events)) == ("/quick", "/quick")
    silent.set()
    assert [sent(event) async for event in events] == [("/silent", "/silent")]
    assert streams.count == 0


async def test_only_a_changed_content_is_sent_again():
    contents = ["one", "one", "one", "two", "two", "one"]

    async def render(_):
        return LiveContent(contents.pop(0), 0 if contents else None)

    events = LiveStreams(asyncio.Event()).events([page_at("/")], render)
    assert [sent(event)[1] async for event in events] == ["one", "two", "one"]


async def test_closing_a_stream_ends_all_reads_of_its_pages():
    before = asyncio.all_tasks()
    reads = dict.fromkeys(("/a", "/b", "/c"), 0)
    never = asyncio.Event()

    async def render(page):
        reads[page.address] += 1
        if page.address == "/c":
            await never.wait()
        return LiveContent(str(reads[page.address]), 0 if page.address == "/a" else 3_600)

    streams = LiveStreams(asyncio.Event())
    events = streams.events([page_at(address) for address in reads], render)
    assert {sent(await anext(events))[0] for _ in range(4)} == {"/a", "/b"}
    assert streams.count == 1
    await events.aclose()
    assert streams.count == 0
    after = dict(reads)
    await turns_until(lambda: asyncio.all_tasks() == before)
    assert reads == after


async def test_a_console_that_stops_ends_its_streams():
    stopping = asyncio.Event()

    async def render(_):
        return LiveContent("same", 3_600)

    streams = LiveStreams(stopping)
    events = streams.events([page_at("/")], render)
    assert sent(await anext(events)) == ("/", "same")
    stopping.set()
    assert [sent(event) async for event in events] == []
    assert streams.count == 0


async def test_an_error_of_a_page_ends_the_stream():
    async def render(_):
        raise LookupError("a fault of the console")

    streams = LiveStreams(asyncio.Event())
    with pytest.raises(LookupError, match="a fault of the console"):
        await anext(streams.events([page_at("/")], render))
    assert streams.count == 0
