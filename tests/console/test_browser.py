"""The pages in Chromium: accessibility, live updates, keyboard, hostile texts, a killed leader."""

import io
import re

import pytest
from PIL import Image

from taskraft import Client
from tests.console.browser import broken_rules, opened
from tests.console.conftest import running_console
from tests.console.test_console_app import PAGES, task_page
from tests.turns import blocked_until
from tools.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.browser]
STATES = 7
"""Number of states of tasks."""
DARK = 150
"""Greatest level of grey of a line that is readable on white paper; 255 is white."""


def shown(page):
    """Return the text of the first figure of a page."""
    return page.locator("dl.figures dd").first.inner_text()


def test_no_page_breaks_a_rule_of_accessibility(chromium, console, client):
    paths = [*PAGES, task_page(client)[0], task_page(client, "hostile")[0], "/tubes/missing"]
    paths.append("/tasks?tube=billing&where=(((")
    with opened(chromium, console.address) as page:
        for path in paths:
            page.goto(console.address + path)
            assert broken_rules(page) == [], path


def test_the_sign_in_breaks_no_rule_of_accessibility(chromium, three_nodes, tmp_path):
    signin = tmp_path / "signin.toml"
    signin.write_text('method = "token"\npublic_url = "http://127.0.0.1:1"\n')
    with (
        running_console(three_nodes.target, "--sign-in", str(signin)) as console,
        opened(chromium, console.address) as page,
    ):
        for path in ("/tubes", "/signin?why=ended"):
            page.goto(console.address + path)
            page.locator("input[name=token]").wait_for()
            assert broken_rules(page) == [], path


@pytest.mark.parametrize("width", [360, 1440])
def test_no_page_is_wider_than_the_screen(chromium, console, client, width):
    paths = [*PAGES, task_page(client)[0]]
    paths += [f"/tubes/hostile/tasks/{task.id}" for task in client.tube("hostile").list()]
    with opened(chromium, console.address, viewport={"width": width, "height": 800}) as page:
        for path in paths:
            page.goto(console.address + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_names_in_tables_and_the_present_page_are_readable(chromium, console, width):
    narrow = """
    () => [...document.querySelectorAll("td.name a")]
      .filter((name) => name.textContent.length < 14 && name.getClientRects().length > 1)
      .map((name) => name.textContent)
    """
    present = """
    () => {
      const place = document.querySelector("nav.main [aria-current]").getBoundingClientRect();
      return place.left >= 0 && place.right <= innerWidth;
    }
    """
    with opened(chromium, console.address, viewport={"width": width, "height": 800}) as page:
        for path in ("/", "/tubes", "/workflows", "/schedules", "/cluster", "/audit", "/rights"):
            page.goto(console.address + path)
            assert page.evaluate(narrow) == [], path
            assert page.evaluate(present), path


def test_a_page_that_is_not_updated_does_not_say_live(chromium, console):
    with opened(chromium, console.address) as page:
        for path, state in (("/tubes/missing", "shown once"), ("/tubes", "live")):
            page.goto(console.address + path)
            assert page.locator("#pulse").inner_text() == state


def test_the_tables_of_counts_fit_a_window_of_1024_pixels(chromium, console):
    hidden = """
    () => [...document.querySelectorAll(".scroll")]
      .map((each) => each.scrollWidth - each.clientWidth)
    """
    with opened(chromium, console.address, viewport={"width": 1024, "height": 768}) as page:
        for path in ("/", "/tubes", "/cluster"):
            page.goto(console.address + path)
            assert set(page.evaluate(hidden)) == {0}, path


def test_a_chart_without_a_cursor_shows_the_newest_values(chromium, console, client):
    blocked_until(lambda: len(client.history(["billing"]).at_ms) >= 2)
    with opened(chromium, console.address) as page:
        page.goto(f"{console.address}/tubes/billing")
        buried = str(client.stats(["billing"]).total.tasks.buried)
        newest = page.locator("#chart-backlog .u-legend .u-series", has_text="buried")
        value = newest.locator(".u-value").filter(has_text=buried)
        value.wait_for()
        assert value.inner_text() == buried


def test_live_updates_leave_open_forms_fields_and_focus(chromium, console, client):
    tube = client.tube("calm")
    tube.put("one")
    with opened(chromium, console.address) as page:
        page.goto(f"{console.address}/tubes/calm")
        page.locator("#act-truncate > summary").click()
        field = page.locator("#act-truncate input[name=name]")
        field.fill("cal")
        tube.put("two")
        page.locator("dl.figures dd").first.filter(has_text="2").wait_for()
        assert field.input_value() == "cal"
        assert page.evaluate("document.activeElement.name") == "name"
        assert page.locator("#act-truncate").get_attribute("open") is not None


def test_live_updates_leave_scroll_and_selection(chromium, console, client):
    tube = client.tube("scrolled")
    for number in range(10):
        tube.put(str(number))
    select = """
    () => {
      scrollTo(0, 300);
      getSelection().selectAllChildren(document.querySelector("main table tbody td a"));
    }
    """
    kept = "() => [scrollY, getSelection().toString()]"
    with opened(chromium, console.address, viewport={"width": 1024, "height": 500}) as page:
        page.goto(f"{console.address}/tubes/scrolled")
        page.evaluate(select)
        before = page.evaluate(kept)
        assert before == [300, "1"]
        tube.put("eleven")
        page.locator("dl.figures dd").first.filter(has_text="11").wait_for()
        assert page.evaluate(kept) == before


def test_a_paused_page_does_not_change(chromium, console, client):
    tube = client.tube("paused-page")
    tube.put("one")
    with opened(chromium, console.address) as page:
        page.goto(f"{console.address}/tubes/paused-page")
        page.keyboard.press(".")
        page.wait_for_url("**/tubes/paused-page?live=0")
        assert page.locator("#pulse").inner_text() == "paused"
        assert page.locator("#live[data-address]").count() == 0
        page.locator("#pause").click()
        page.wait_for_url("**/tubes/paused-page?")
        tube.put("two")
        page.locator("dl.figures dd").first.filter(has_text="2").wait_for()


def test_everything_is_reached_with_the_keyboard(chromium, console, client):
    path, task = task_page(client)
    with opened(chromium, console.address) as page:
        page.goto(console.address)
        page.keyboard.press("Control+k")
        page.keyboard.type(f"billing/{task.id}")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{path}")
        for keys, url in (("gt", "**/tubes"), ("gc", "**/cluster"), ("go", "**/")):
            page.keyboard.type(keys)
            page.wait_for_url(url)
        page.keyboard.type("gt")
        page.wait_for_url("**/tubes")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/tubes/*")
        page.keyboard.press("?")
        assert page.locator("#help").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#help").is_visible()


def test_a_change_works_without_scripts(chromium, console, client):
    tube = client.tube("scriptless")
    task_id = tube.put("one")
    with opened(chromium, console.address, java_script_enabled=False) as page:
        page.goto(f"{console.address}/tubes/scriptless/tasks/{task_id}")
        page.locator("#act-bury > summary").click()
        page.locator("#act-bury input[name=reason]").fill("by hand")
        page.locator("#act-bury button.primary").click()
        page.get_by_role("status").filter(has_text="buried").wait_for()
        page.locator("#act-kick > summary").click()
        page.locator("#act-kick button.primary").click()
        page.get_by_role("status").filter(has_text="kicked").wait_for()
    assert tube.peek(task_id).state == "READY"


def test_the_theme_and_the_zone_are_kept(chromium, console):
    with opened(chromium, console.address, color_scheme="light", timezone_id="Asia/Tokyo") as page:
        page.goto(f"{console.address}/workflows")
        before = page.locator("td time").first.inner_text()
        page.locator("#theme").click()
        page.locator("#zone").click()
        page.locator("#zone", has_text="Local").wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.locator("td time").first.inner_text() != before


def test_an_open_page_survives_a_killed_leader(chromium, tmp_path):
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
    with (
        LocalCluster(3, tmp_path / "killed", settings) as cluster,
        running_console(cluster.target, "--timeout", "2s") as console,
        Client(cluster.target) as client,
        opened(chromium, console.address) as page,
    ):
        cluster.wait_ready()
        client.tube("survivor").put("one")
        page.goto(f"{console.address}/tubes/survivor")
        leader = cluster.leader()
        leader.kill()
        client.tube("survivor").put("two")
        page.locator("dl.figures dd").first.filter(has_text="2").wait_for()
        page.goto(f"{console.address}/cluster")
        page.locator("tr", has_text=leader.name).filter(has_text="silent").wait_for()
        assert "Nothing" not in page.content()


def test_values_from_before_an_outage_are_grey_and_have_an_age(chromium, tmp_path):
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
    with (
        LocalCluster(1, tmp_path / "old", settings) as cluster,
        running_console(cluster.target, "--timeout", "1s") as console,
        opened(chromium, console.address) as page,
    ):
        cluster.wait_ready()
        with Client(cluster.target) as client:
            client.tube("kept").put("one")
        page.goto(f"{console.address}/tubes/kept")
        assert page.locator("main.old").count() == 0
        cluster.nodes[0].kill()
        page.get_by_role("alert").filter(has_text="No node answers").wait_for()
        page.locator("main.old").wait_for()
        assert shown(page) == "1"
        assert broken_rules(page) == []
        console.process.kill()
        page.locator("#pulse", has_text="no live updates").wait_for()
        page.locator("#age", has_text=re.compile(r"values \d+ s old")).wait_for()
        assert shown(page) == "1"


def test_the_states_are_told_apart_in_grey_print(chromium, console):
    """Each state has a word and a shape of its own, so that no color is needed."""
    with opened(chromium, console.address, device_scale_factor=4) as page:
        page.goto(f"{console.address}/tasks?tube=billing")
        page.emulate_media(media="print")
        vision = page.context.new_cdp_session(page)
        vision.send("Emulation.setEmulatedVisionDeficiency", {"type": "achromatopsia"})
        badges = page.locator(".chips .state")
        words = badges.all_inner_texts()
        assert len(set(words)) == len(words) == STATES
        assert all(words)
        shapes = set()
        for place in range(STATES):
            picture = io.BytesIO(badges.nth(place).locator("svg").screenshot())
            grey = Image.open(picture).convert("L")
            assert grey.getextrema()[0] < DARK, words[place]
            shapes.add(grey.point(lambda level: 255 * (level > DARK)).resize((8, 8)).tobytes())
        assert len(shapes) == STATES
