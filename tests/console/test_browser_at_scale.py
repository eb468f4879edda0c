"""The pages in Chromium with 10 000 tubes and 1 000 000 tasks; `make nightly` runs this file."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.console import PAGES, fill
from bench.worst.stage import FILLED, Size
from taskraft import Client
from taskraft_console.views.readable import readable_count
from tests.console.browser import opened
from tests.console.conftest import running_console
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.browser, pytest.mark.nightly]
TUBES = 10_000
TASKS = 1_000_000
OBJECTS = 200
"""Number of sessions, of schedules and of groups."""
STEPS_MAX = 20
"""Maximum number of pages of a search through all tasks; a page looks at up to 100 000 tasks."""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Run a console of a full cluster."""
    with LocalCluster(3, tmp_path_factory.mktemp("full")) as cluster:
        leader = cluster.wait_ready()
        size = Size(TUBES, OBJECTS, OBJECTS, OBJECTS, TASKS)
        with ThreadPoolExecutor() as thread:  # the browser has the event loop of this thread
            thread.submit(asyncio.run, fill(leader.address, size)).result()
        with running_console(cluster.target) as console:
            yield console, cluster.target


@pytest.fixture
def page(chromium, full):
    address = full[0].address
    with opened(
        chromium, address, base_url=address, viewport={"width": 1440, "height": 900}
    ) as one:
        yield one


def names(page):
    """Return the texts of the links in the first column."""
    return page.locator("main table.list tbody tr td:first-child a").all_inner_texts()


def follow(page, link):
    """Click a link, and wait for the page behind it."""
    with page.expect_navigation():
        link.click()


def search(page, **fields):
    """Fill in the filters, and send them."""
    for name, value in fields.items():
        page.locator(f"form.filters input[name={name}]").fill(value)
    with page.expect_navigation():
        page.locator("form.filters button").click()


def test_every_page_opens(page):
    for path in PAGES:
        answer = page.goto(path)
        assert answer.status == 200, path
        if not path.startswith("/history"):
            assert page.locator("h1").count() == 1, path
            assert page.locator("#pulse").inner_text() == "live", path


def test_tubes_are_sorted_filtered_and_paged(page):
    page.goto("/tubes")
    count = readable_count(TUBES + 1)
    assert page.locator("h1 small").inner_text() == f"{count} of {count}"
    follow(page, page.get_by_role("link", name="Ready", exact=True))
    assert names(page)[0] == FILLED
    search(page, q="*l*")
    assert names(page)[0] == FILLED  # the order is kept
    search(page, q="tube.0012*")
    assert sorted(names(page)) == [f"tube.0012{digit}" for digit in range(10)]
    search(page, q="tube.*")
    seen = [names(page)]
    for _ in range(2):
        follow(page, page.get_by_role("link", name="next", exact=True))
        seen.append(names(page))
    assert len(set().union(*seen)) == sum(map(len, seen))
    follow(page, page.get_by_role("link", name="previous", exact=True))
    assert names(page) == seen[1]


def test_tasks_are_searched_and_paged(page):
    page.goto("/tasks")
    search(page, tube=FILLED, where=f"id > {TASKS - 120}")
    seen = [int(name) for name in names(page)]
    for _ in range(STEPS_MAX):
        if seen[-1:] == [TASKS]:
            break
        follow(page, page.get_by_role("link", name="next page"))
        seen += [int(name) for name in names(page)]
    assert seen == list(range(TASKS - 119, TASKS + 1))
    assert page.get_by_role("link", name="next page").count() == 0
    follow(page, page.get_by_role("link", name=str(TASKS), exact=True))
    assert str(TASKS) in page.locator("h1").inner_text()


def test_an_open_overview_shows_a_new_task(page, full):
    page.goto("/")
    delayed = page.locator("dl.figures div", has_text="Delayed").locator("dd")
    assert delayed.inner_text() == "0"
    with Client(full[1]) as client:
        client.tube("tube.00000").put("later", delay="1h")
    delayed.filter(has_text="1").wait_for()
    assert page.locator("#pulse").inner_text() == "live"
