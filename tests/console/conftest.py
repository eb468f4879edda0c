"""Fixtures: a cluster of real nodes with data, consoles as processes, and a browser."""

import contextlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

import httpx2
import pytest
from playwright.sync_api import sync_playwright

from taskraft import Client, Retry
from tools.local_cluster import LocalCluster

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "' hx-get='/cluster' hx-trigger='load",
    'x" data-hx-on:load="alert(1)',
    "{{ 7 * 7 }}",
    "\u202egnp.exe\u0007",
    "a" * 1_000,
)
"""Texts that a page must show without running or obeying them."""


@dataclass
class RunningConsole:
    """A console as a process of its own."""

    process: subprocess.Popen
    address: str

    def get(self, path, **options):
        return httpx2.get(self.address + path, **options)

    def post(self, path, form, *, is_own=True, **options):
        """Send a form as a page of the console would send it."""
        if is_own:
            page = self.get("/cluster").text
            form = {"csrf": re.search(r'name="csrf" value="([^"]+)"', page)[1], **form}
        headers = {"sec-fetch-site": "same-origin"}
        return httpx2.post(self.address + path, data=form, headers=headers, **options)


@contextlib.contextmanager
def running_console(target, *arguments):
    """Run a console until the end of the block."""
    command = [sys.executable, "-m", "taskraft", "console", "--target", target]
    command += ["--listen", "127.0.0.1:0", "--timeout", "3s", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("console: http://"), line
            yield RunningConsole(process, line.removeprefix("console: ").strip().rstrip("/"))
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory):
    """Run three nodes with some data."""
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
    with LocalCluster(3, tmp_path_factory.mktemp("console"), settings) as cluster:
        cluster.wait_ready()
        with Client(cluster.target) as client:
            fill(client)
        yield cluster


def fill(client):
    """Put tasks in all states, failures, a workflow, a schedule, and hostile texts."""
    retry = Retry(attempts_max=2)
    client.create_tube("billing", ttr="60s", concurrency=8, retry=retry)
    client.create_tube("kept", on_ack="keep")
    billing, kept = client.tube("billing"), client.tube("kept")
    for number in range(12):
        billing.put({"id": 1970670598291982290, "n": number}, type="invoice")
    for _ in range(3):
        for _ in range(2):
            task = billing.take(wait=0)
            task.release(reason=TimeoutError("read timed out after 30 s"))
    billing.put(b"\x00\xff\xfe", type="binary", delay="1h")
    kept.put("done", type="report")
    kept.take(wait=0).ack(result={"rows": 3})
    client.groups.create("book-1")
    kept.put({"page": 1}, group="book-1", type="extract")
    client.schedules.create("nightly", "30 2 * * *", kept.task({"report": 1}), paused=True)
    hostile = client.tube("hostile")
    for text in HOSTILE:
        short = text.encode()[:100].decode()
        hostile.put(
            text, type=short, key=short, headers={"x": text[:100]}, content_type="text/plain"
        )
    for text in HOSTILE:
        task = hostile.take(wait=0)
        task.bury(type(text[:60].replace("\0", ""), (Exception,), {})(text))
    client.groups.create(HOSTILE[0])
    client.schedules.create(HOSTILE[0], "0 0 1 1 *", kept.task(HOSTILE[1]))


@pytest.fixture(scope="session")
def console(three_nodes):
    """Run a console that shows payloads."""
    with running_console(three_nodes.target, "--payloads", "full") as one:
        yield one


@pytest.fixture(scope="module")  # a thread of a longer life would be seen by tests of the client
def client(three_nodes):
    with Client(three_nodes.target) as one:
        yield one


@pytest.fixture(scope="module")
def chromium():
    """Run Chromium without a window."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("not installed: chromium (Debian, Ubuntu: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
