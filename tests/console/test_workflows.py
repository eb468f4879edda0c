"""The page of a group: its tasks and their dependencies."""

import html
import re
import shlex
from urllib.parse import quote

import pytest

from tests.console.conftest import HOSTILE
from tests.turns import blocked_until


@pytest.fixture
def book(client):
    """Return the first steps of a group of six pages with two steps each; one is buried.

    The second step of the buried one has ended.
    """
    client.create_tube("book.pages", on_ack="keep")
    tube = client.tube("book.pages")
    client.groups.create("book/2", end_task=tube.task("bind", type="bind"))
    first = [tube.put(f"{page}", type="extract", group="book/2") for page in range(6)]
    for page in first:
        tube.put("load", type="load", group="book/2", depends_on=[page])
    client.groups.start("book/2")
    tube.bury(first[0], reason="unreadable")
    yield first
    client.drop_tube("book.pages")


@pytest.mark.cluster
def test_the_page_of_a_group_draws_its_tasks_and_cancels_them(console, client, book):
    console.post("/tubes/book.pages/do/resume-puts", {})  # the change makes the console read again
    page = console.get("/workflows/book%2F2").text
    assert page.count('class="node node-') == 3, "5 READY, 1 BURIED and 5 HELD tasks"
    assert page.count('class="edge"') == 1
    assert page.count("5 tasks</text>") == 2
    assert f'href="/tubes/book.pages/tasks/{book[0]}"' in page
    rows = re.findall(r'<tr id="task-book.pages-(\d+)".*?state-([A-Z]+)"', page)
    assert [state for _, state in rows] == ["BURIED"] + ["READY"] * 5 + ["HELD"] * 5
    assert rows[0][0] == str(book[0])
    # The search for tasks ends after 30 tubes, and tests of other pages may have created more.
    assert re.search(r"1( or more)? task is buried", page)
    assert "At the end, a task is put into" in page
    assert 'href="/workflows/book%2F2"' in console.get("/workflows").text
    answer = console.post("/workflows/book%2F2/do/cancel", {})
    assert answer.status_code == 303
    assert client.groups.get("book/2").state == "CANCELLED"


@pytest.mark.cluster
def test_a_hostile_name_has_a_page(console):
    answer = console.get(f"/workflows/{quote(HOSTILE[0], safe='')}")
    assert answer.status_code == 200
    assert "<img" not in answer.text
    assert console.get("/workflows/nobody").status_code == 404


@pytest.mark.cluster
def test_the_page_of_a_task_draws_the_tasks_around_it(console, client):
    chain = client.tube("chain")
    first = chain.put("1", type="<b>first</b>")
    second = chain.put("2", depends_on=[first])
    third = chain.put("3", depends_on=[second])
    alone = chain.put("4")
    for one in (first, second, third):
        page = console.get(f"/tubes/chain/tasks/{one}").text
        drawn = page.partition('id="dependencies"')[2].partition("</svg>")[0]
        links = re.findall(r'href="(/tubes/chain/tasks/\d+)"', drawn)
        assert links == [f"/tubes/chain/tasks/{each}" for each in (first, second, third)]
        assert drawn.count('class="edge"') == 2
        assert "READY &lt;b&gt;first" in drawn
    assert 'id="dependencies"' not in console.get(f"/tubes/chain/tasks/{alone}").text


@pytest.mark.cluster
def test_a_hostile_name_is_one_word_of_each_command(console, client):
    name = """$(x); 'y" z"""
    client.groups.create(name)
    client.tube("kept").put("x", group=name)
    client.groups.start(name)
    client.schedules.create(name, "0 0 1 1 *", client.tube("kept").task("x"))
    for path in ("/workflows", "/schedules"):
        blocked_until(lambda path=path: quote(name) in console.get(path).text)
        codes = re.findall(r"<code>(.*?)</code>", console.get(path).text)
        forms = [html.unescape(code) for code in codes]
        shell = [shlex.split(form)[-1] for form in forms if form.startswith("taskraft")]
        assert name in shell
        assert any(repr(name) in form for form in forms if form.startswith("client"))
    client.groups.cancel(name)
    client.schedules.delete(name)
