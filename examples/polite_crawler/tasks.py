"""The task of the crawler: fetch a page, and put the pages to which it links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx2

from taskraft.worker import App, Context, Depends, RejectTask, RetryTask

AGENT = "polite-crawler"
BUSY = (429, 503)

app = App("polite-crawler")
# A sub-queue for each host: one page at a time, and two pages per second. The cluster keeps the
# rates, so they hold for all workers together.
app.tube("pages", kind="utubettl", subqueue_rate_per_second=2, subqueue_rate_burst=1)


async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """Open one HTTP client for each worker."""
    async with httpx2.AsyncClient(headers={"User-Agent": AGENT}, timeout=10) as client:
        yield client


class Robots:
    """The rules of robots.txt, read once for each host."""

    def __init__(self) -> None:
        self._rules: dict[str, RobotFileParser] = {}

    async def allow(self, client: httpx2.AsyncClient, url: str) -> bool:
        """Return whether the host allows robots to fetch a page."""
        host = urlsplit(url).netloc
        if host not in self._rules:
            answer = await client.get(urljoin(url, "/robots.txt"))
            rules = RobotFileParser()
            rules.parse(answer.text.splitlines() if answer.is_success else [])
            self._rules[host] = rules
        return self._rules[host].can_fetch(AGENT, url)


def robots() -> Robots:
    """Share the rules between the tasks of a worker."""
    return Robots()


# The unique key keeps a page from being fetched twice. Finished tasks with a kept result (ZOMBIE)
# count too, for one day.
@app.task(
    tube="pages",
    subqueue=lambda url: urlsplit(url).netloc,
    key=lambda url: url,
    key_states=("READY", "DELAYED", "TAKEN", "BURIED", "ZOMBIE"),
    on_conflict="return_existing",
    keep_result="1d",
)
async def fetch(
    ctx: Context,
    url: str,
    depth: int,
    *,
    client: httpx2.AsyncClient = Depends(http, scope="app"),
    rules: Robots = Depends(robots, scope="app"),
) -> str:
    """Fetch a page and return its title; put its links with the acknowledgement."""
    if not await rules.allow(client, url):
        raise RejectTask("robots.txt forbids the page")
    answer = await client.get(url)
    if answer.status_code in BUSY:
        raise RetryTask(delay=answer.headers.get("retry-after", "60") + "s", reason="busy")
    answer.raise_for_status()
    page = Page(url, answer.text)
    ctx.log.info("%s: %s", url, page.title)
    if depth > 0:
        links = (link for link in page.links if link != url)
        ctx.put_on_success(*(fetch.plan(link, depth - 1) for link in links))
    return page.title


class Page(HTMLParser):
    """Title and links of a page."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.title = ""
        self.links: list[str] = []
        self._url = url
        self._is_in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the target of a link, or begin the title."""
        self._is_in_title = tag == "title"
        target = dict(attrs).get("href")
        if tag == "a" and target:
            link = urldefrag(urljoin(self._url, target)).url
            if link.startswith(("http://", "https://")) and link not in self.links:
                self.links.append(link)

    def handle_endtag(self, tag: str) -> None:
        """End the title."""
        self._is_in_title = False

    def handle_data(self, data: str) -> None:
        """Append text to the title."""
        if self._is_in_title:
            self.title += data
