"""The tabs of one browser share one stream: the holder of a Web Lock relays to the visible tabs."""

import asyncio
import socket
import threading

import pytest
import uvicorn

from taskraft_console import live_endpoint
from taskraft_console.console_app import ConsoleApp
from taskraft_console.console_settings import ConsoleSettings
from taskraft_console.live_pages import PAGES_MAX
from tests.console.browser import opened_browser
from tests.turns import blocked_until

pytestmark = [pytest.mark.cluster, pytest.mark.browser]
TABS = 7
"""Number of tabs: one more than the connections of a browser to a server over HTTP/1.1."""
SHOW = """
(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""
OLD_BROWSER = "delete Navigator.prototype.locks"


class ConsoleInThread:
    """A console in this process, so that a test sees its streams and its calls."""

    def __init__(self, target):
        self.app = ConsoleApp(ConsoleSettings(target=target))
        self.live = []
        """Addresses of the open streams."""
        self.is_mute = False
        """True: new streams are accepted, and nothing is sent on them."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(self._serve, log_level="warning", lifespan="on", interface="asgi3")
        )
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._server.serve([self._listener]),)
        )
        self._thread.start()

    async def _serve(self, scope, receive, send):
        is_live = scope["type"] == "http" and scope["path"] == "/live"
        if is_live:
            assert scope["http_version"] == "1.1"
            self.live.append(scope["query_string"].decode())
        try:
            if is_live and self.is_mute:
                headers = [(b"content-type", b"text/event-stream")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": b"\n", "more_body": True})
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            await self.app.app(scope, receive, send)
        finally:
            if is_live:
                self.live.remove(scope["query_string"].decode())

    def stop(self):
        self.app.stop()
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


@pytest.fixture
def watched(three_nodes):
    console = ConsoleInThread(three_nodes.target)
    try:
        yield console
    finally:
        console.stop()


def pages_of(stream):
    """Return the paths in the query of a stream."""
    return sorted(part.removeprefix("page=").replace("%2F", "/") for part in stream.split("&"))


def shown(page):
    return page.locator("dl.figures dd").first


def open_tabs(browser, watched, client, tubes):
    """Open one tab for each tube."""
    tabs = []
    for tube in tubes:
        client.tube(tube).put("one")
        tabs.append(browser.new_page())
        tabs[-1].goto(f"{watched.address}/tubes/{tube}")
    return tabs


def put_and_see(client, tabs, tubes, count):
    """Put a task into each tube, and see its number in each tab."""
    for tube in tubes:
        client.tube(tube).put("more")
    for tab in tabs:
        shown(tab).filter(has_text=str(count)).wait_for()


def test_seven_tabs_show_live_data_over_one_stream(chromium, watched, client):
    tubes = [f"tab-{number}" for number in range(TABS)]
    with opened_browser(chromium, watched.address) as browser:
        tabs = open_tabs(browser, watched, client, tubes)
        put_and_see(client, tabs, tubes, 2)
        assert [pages_of(stream) for stream in watched.live] == [
            [f"/tubes/{tube}" for tube in tubes]
        ]
        tabs[0].close()  # the first tab holds the stream
        put_and_see(client, tabs[1:], tubes, 3)
        blocked_until(lambda: len(watched.live) == 1)
    blocked_until(lambda: not watched.live)


def test_a_hidden_tab_is_silent_and_gets_new_values_when_it_is_shown(chromium, watched, client):
    tubes = ["shown-tab", "hidden-tab"]
    with opened_browser(chromium, watched.address) as browser:
        tabs = open_tabs(browser, watched, client, tubes)
        put_and_see(client, tabs, tubes, 2)
        tabs[1].evaluate(SHOW, True)
        blocked_until(lambda: [pages_of(each) for each in watched.live] == [["/tubes/shown-tab"]])
        client.tube("hidden-tab").put("three")
        put_and_see(client, tabs[:1], tubes[:1], 3)
        assert shown(tabs[1]).inner_text() == "2"
        tabs[1].evaluate(SHOW, False)
        shown(tabs[1]).filter(has_text="3").wait_for()


def test_the_stream_moves_when_its_tab_is_hidden_and_ends_with_the_last_one(
    chromium, watched, client
):
    tubes = ["first-tab", "second-tab"]
    with opened_browser(chromium, watched.address) as browser:
        tabs = open_tabs(browser, watched, client, tubes)
        put_and_see(client, tabs, tubes, 2)
        tabs[0].evaluate(SHOW, True)
        put_and_see(client, tabs[1:], tubes[1:], 3)
        blocked_until(lambda: [pages_of(each) for each in watched.live] == [["/tubes/second-tab"]])
        tabs[1].evaluate(SHOW, True)
        blocked_until(lambda: not watched.live)
        assert [tab.evaluate("document.hidden") for tab in tabs] == [True, True]


def test_two_tabs_with_one_page_read_the_page_once(chromium, watched, client):
    tubes = ["same-tab", "same-tab"]
    with opened_browser(chromium, watched.address) as browser:
        tabs = open_tabs(browser, watched, client, tubes)
        put_and_see(client, tabs, tubes[:1], 3)
        assert [pages_of(each) for each in watched.live] == [["/tubes/same-tab"]]


def test_a_browser_without_locks_has_one_stream_for_each_tab(chromium, watched, client):
    tubes = ["old-one", "old-two"]
    with opened_browser(chromium, watched.address) as browser:
        browser.add_init_script(OLD_BROWSER)
        tabs = open_tabs(browser, watched, client, tubes)
        put_and_see(client, tabs, tubes, 2)
        assert sorted(map(pages_of, watched.live)) == [["/tubes/old-one"], ["/tubes/old-two"]]
        tabs[0].evaluate(SHOW, True)
        blocked_until(lambda: [pages_of(each) for each in watched.live] == [["/tubes/old-two"]])


def test_a_page_beyond_the_limit_of_a_stream_says_that_too_many_are_open(chromium, watched, client):
    client.tube("many-tabs").put("one")
    with opened_browser(chromium, watched.address) as browser:
        tabs = [browser.new_page() for _ in range(PAGES_MAX + 1)]
        for number, tab in enumerate(tabs):
            tab.goto(f"{watched.address}/tubes/many-tabs?ttl={number + 1}h")
        left_out = [tab for tab in tabs if "too many" in tab.locator("#pulse").inner_text()]
        assert len(left_out) == 1
        tabs[0].close()
        left_out[0].locator("#pulse", has_text="live").wait_for()


@pytest.mark.parametrize("browser_age", ["new", "old"])
def test_a_page_without_a_stream_is_read_every_ten_seconds_until_there_is_one(
    chromium, watched, client, monkeypatch, browser_age
):
    tube = f"no-stream-{browser_age}"
    client.tube(tube).put("one")
    monkeypatch.setattr(live_endpoint, "STREAMS_MAX", 0)
    with opened_browser(chromium, watched.address) as browser:
        if browser_age == "old":
            browser.add_init_script(OLD_BROWSER)
        page = browser.new_page()
        page.clock.install()
        page.goto(f"{watched.address}/tubes/{tube}")
        state = page.locator("#pulse")
        state.filter(has_text="no live updates: reloads every 10 s").wait_for()
        client.tube(tube).put("two")
        page.clock.run_for(10_000)
        shown(page).filter(has_text="2").wait_for()
        state.filter(has_text="reloads every 10 s").wait_for()
        monkeypatch.undo()
        page.clock.run_for(10_000)
        state.filter(has_text="live").filter(has_not_text="reloads").wait_for()
        client.tube(tube).put("three")
        shown(page).filter(has_text="3").wait_for()
        assert [pages_of(each) for each in watched.live] == [[f"/tubes/{tube}"]]


def test_a_stream_that_falls_silent_is_opened_again(chromium, watched, client):
    client.tube("silent").put("one")
    watched.is_mute = True
    with opened_browser(chromium, watched.address) as browser:
        page = browser.new_page()
        page.clock.install()
        page.goto(f"{watched.address}/tubes/silent")
        blocked_until(lambda: len(watched.live) == 1)
        assert page.locator("#pulse").inner_text() == "live"
        page.clock.run_for(50_000)
        page.locator("#pulse", has_text="no live updates").wait_for()
        page.locator("main.old").wait_for()
        watched.is_mute = False
        page.clock.run_for(50_000)
        client.tube("silent").put("two")
        shown(page).filter(has_text="2").wait_for()
        page.locator("main:not(.old)").wait_for()


def test_a_browser_without_scripts_reloads_pages_on_which_nobody_writes(chromium, watched, client):
    client.tube("no-scripts").put("one")
    with opened_browser(chromium, watched.address, java_script_enabled=False) as browser:
        page = browser.new_page()
        refresh = page.locator("meta[http-equiv=refresh]")
        for path, seconds in (("/", "10"), ("/bulk", "10"), ("/?live=0", ""), ("/tubes", "")):
            page.goto(watched.address + path)
            assert [each.get_attribute("content") for each in refresh.all()] == [seconds] * bool(
                seconds
            ), path
            assert page.locator("#pulse").is_hidden()
            said = "reloads every 10 s" if seconds else "shown once"
            assert page.locator(".status noscript").inner_text().startswith(said)
