"""The crawler keeps the rate of each host, in virtual time, and fetches each page once."""

from itertools import pairwise
from urllib.parse import urlsplit

import httpx2
import pytest

from examples.polite_crawler.tasks import Page, app, fetch, http

pytestmark = pytest.mark.taskraft(app=app)
HOSTS = ("one.example", "two.example")


class Web:
    """Sites that link to each other, and the time of each request."""

    def __init__(self, kit):
        self.kit = kit
        self.requests = []
        self.answers = {}

    def answer(self, request):
        if request.url.path == "/robots.txt":
            return httpx2.Response(200, text="User-agent: *\nDisallow: /private\n")
        self.requests.append((str(request.url), self.kit.clock.now))
        if str(request.url) in self.answers:
            return self.answers.pop(str(request.url))
        links = [f"http://{host}/{page}" for host in HOSTS for page in (*range(5), "private")]
        anchors = "".join(f"<a href='{link}'>more</a>" for link in links)
        return httpx2.Response(200, text=f"<title>{request.url.path}</title>{anchors}")


@pytest.fixture
async def web(ataskraft):
    web = Web(ataskraft)

    async def fake():
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(web.answer)) as client:
            yield client

    app.overrides[http] = fake
    await app.acreate_tubes()
    yield web
    app.overrides.clear()


async def test_each_page_is_fetched_once_and_no_host_faster_than_its_rate(ataskraft, web):
    await fetch.aput("http://one.example/0", 3)
    await ataskraft.advance("1m")
    pages = sorted(url for url, _ in web.requests)
    assert pages == [f"http://{host}/{page}" for host in HOSTS for page in range(5)]
    for host in HOSTS:
        times = [at for url, at in web.requests if urlsplit(url).netloc == host]
        pauses = [(after - before).total_seconds() for before, after in pairwise(times)]
        assert min(pauses) >= 0.5, pauses


async def test_pages_that_robots_txt_forbids_are_not_fetched(ataskraft, web):
    handle = await fetch.aput("http://one.example/private", 3)
    await ataskraft.advance("1m")
    assert (web.requests, (await handle.aoutcome()).outcome) == ([], "BURIED_OUT")


async def test_a_busy_host_says_when_to_come_again(ataskraft, web):
    start = "http://one.example/0"
    web.answers[start] = httpx2.Response(429, headers={"retry-after": "120"})
    await fetch.aput(start, 0)
    await ataskraft.advance("119s")
    assert len(web.requests) == 1
    await ataskraft.advance("1s")
    assert len(web.requests) == 2


def test_links_are_absolute_and_without_fragment():
    text = "<a href='b#c'>x</a><a href='mailto:a@b.c'>y</a><a href='/a/b'>z</a>"
    assert Page("http://one.example/a/", text).links == ["http://one.example/a/b"]
