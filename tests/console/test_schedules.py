"""The page of a schedule: next times, and the backfill of past times."""

from datetime import UTC, datetime

import pytest

from taskraft_console.pages.page import FormRefused
from taskraft_console.pages.schedule import Span
from tests.turns import blocked_until


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def test_a_span_has_two_instants():
    assert Span.of({}) is None
    assert Span.of({"from": "2026-03-29T02:30", "to": "2026-03-29T04:30+02:00"}) == Span(
        utc(2026, 3, 29, 2, 30), utc(2026, 3, 29, 2, 30)
    )


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        ("soon", "2026-03-29T04:30", "soon"),
        ("2026-03-29T04:30", "", "is no time"),
        ("2026-03-29T04:30", "2026-03-29T04:29", "ends before"),
    ],
)
def test_an_unusable_span_is_refused(begin, end, said):
    with pytest.raises(FormRefused, match=said):
        Span.of({"from": begin, "to": end})


@pytest.fixture
def hourly(client):
    """Return a paused schedule whose hours follow the clock of Vienna, and its empty tube."""
    client.create_tube("backfilled")
    tube = client.tube("backfilled")
    client.schedules.create(
        "hourly", "30 * * * *", tube.task("work"), time_zone="Europe/Vienna", paused=True
    )
    yield tube
    client.schedules.delete("hourly")
    client.drop_tube("backfilled")


SPAN = {"from": "2026-03-28T22:30", "to": "2026-03-29T02:00"}
QUERY = "from=2026-03-28T22:30&to=2026-03-29T02:00"


@pytest.mark.cluster
def test_the_page_of_a_schedule_shows_the_next_times(console, client, hourly):
    page = console.get("/schedules/hourly").text
    times = client.schedules.times("hourly", 10)
    assert len(times) == 10
    for at in times[:3]:
        assert f'datetime="{at.strftime("%Y-%m-%dT%H:%M")}' in page
    assert "none is put while the schedule is paused" in page
    # The console keeps its list of schedules for some seconds.
    blocked_until(lambda: console.get("/go?q=hourly").status_code == 303)
    assert console.get("/go?q=hourly").headers["location"] == "/schedules/hourly"
    assert console.get("/schedules/nobody").status_code == 404


@pytest.mark.cluster
def test_a_backfill_puts_one_task_for_each_past_time_once(console, client, hourly):
    page = console.get(f"/schedules/hourly?{QUERY}").text
    assert "Put 4 tasks" in page
    assert hourly.stats().tasks.total == 0
    for _ in range(2):
        assert console.post("/schedules/hourly/do/backfill", SPAN).status_code == 303
    tasks = list(hourly.list())
    slots = [int(hourly.peek(task.id).headers["taskraft-slot-ms"]) for task in tasks]
    first = int(utc(2026, 3, 28, 22, 30).timestamp() * 1_000)
    assert slots == [first + hour * 3_600_000 for hour in range(4)]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("span", "said"),
    [
        ({"from": "2026-01-01T00:00", "to": "2026-03-01T00:00"}, "more than 99 times"),
        ({"from": "2100-01-01T00:00", "to": "2100-01-02T00:00"}, "no past time"),
        ({"from": "0001-01-01T00:00", "to": "2100-01-02T00:00"}, "between the years"),
        ({"from": "x", "to": "y"}, "is no time"),
        ({}, "Enter the begin"),
    ],
)
def test_an_unusable_backfill_is_refused_and_puts_nothing(console, hourly, span, said):
    answer = console.post("/schedules/hourly/do/backfill", span)
    assert answer.status_code == 400
    assert said in answer.text
    assert hourly.stats().tasks.total == 0
