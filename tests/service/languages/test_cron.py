"""Times of cron expressions, especially around clock changes."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskraft_service.languages.cron import CronMalformed, cron

VIENNA = "Europe/Vienna"


def instant(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def some(expression, zone, after, count):
    times = islice(cron(expression, zone).times(instant(after)), count)
    return [
        datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "minutes")[:16] for at_ms in times
    ]


def test_times_are_computed_in_the_time_zone():
    assert some("0 9 * * MON", "", "2026-01-01 00:00", 2) == [
        "2026-01-05 09:00",
        "2026-01-12 09:00",
    ]
    assert some("0 9 * * MON", VIENNA, "2026-01-01 00:00", 1) == ["2026-01-05 08:00"]
    assert some("0 9 * * MON", "Asia/Kolkata", "2026-01-01 00:00", 1) == ["2026-01-05 03:30"]


def test_times_in_a_skipped_hour_come_once_right_after_it():
    assert some("10,40 2 * * *", VIENNA, "2024-03-30 12:00", 2) == [
        "2024-03-31 01:00",
        "2024-04-01 00:10",
    ]


def test_a_fixed_hour_that_occurs_twice_counts_once():
    assert some("30 2 * * *", VIENNA, "2024-10-26 12:00", 2) == [
        "2024-10-27 00:30",
        "2024-10-28 01:30",
    ]


def test_a_fixed_hour_does_not_come_again_in_its_second_occurrence():
    assert some("30 2 * * *", VIENNA, "2024-10-27 00:30", 1) == ["2024-10-28 01:30"]
    assert some("30 2 * * *", VIENNA, "2024-10-27 01:10", 1) == ["2024-10-28 01:30"]


def test_an_hourly_pattern_follows_the_elapsed_hours():
    assert some("*/30 * * * *", VIENNA, "2024-10-26 23:59", 5) == [
        "2024-10-27 00:00",
        "2024-10-27 00:30",
        "2024-10-27 01:00",
        "2024-10-27 01:30",
        "2024-10-27 02:00",
    ]


@pytest.mark.parametrize(
    ("expression", "zone", "field"),
    [
        ("", "", "cron"),
        ("* * * *", "", "cron"),
        ("0 * * * * *", "", "cron"),
        ("60 * * * *", "", "cron"),
        ("* * * * MOON", "", "cron"),
        ("*/0 * * * *", "", "cron"),
        ("0 0 30 2 *", "", "cron"),
        ("0 0 30 2 *", VIENNA, "cron"),
        (f"*/{'9' * 200} * * * *", "", "cron"),
        ("0 0 1-31/99999999999999999999 * *", "", "cron"),
        ("0 0 1-31/32 * *", "", "cron"),
        ("*/61 * * * *", "", "cron"),
        ("* * * * *", "localtime", "time_zone"),
        ("* * * * *", "posixrules", "time_zone"),
        ("* * * * *", "Factory", "time_zone"),
        ("* * * * *", "right/UTC", "time_zone"),
        ("1," * 200 + "1 * * * *", "", "cron"),
        ("* * * * *", "Europe/Nowhere", "time_zone"),
        ("* * * * *", "../../etc/passwd", "time_zone"),
        ("* * * * *", "Europe", "time_zone"),
        ("* * * * *", "\0", "time_zone"),
        ("* * * * *", "x" * 5_000, "time_zone"),
    ],
)
def test_an_invalid_schedule_is_refused_with_its_field(expression, zone, field):
    with pytest.raises(CronMalformed) as caught:
        cron(expression, zone)
    assert caught.value.field == field


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 2 */2"])
def test_a_day_that_no_month_has_is_refused_as_such(expression):
    with pytest.raises(CronMalformed, match="no such date"):
        cron(expression, "")


def test_a_number_that_is_too_large_is_refused_with_its_position():
    with pytest.raises(CronMalformed, match="a number of 20 digits") as caught:
        cron("0 0 1-31/99999999999999999999 * *", "")
    assert caught.value.position == 9
    with pytest.raises(CronMalformed, match="the step 25; the greatest is 24"):
        cron("0 */25 * * *", "")
    assert cron("0 */24 * * *", "").after(0) == 86_400_000


LORD_HOWE = "Australia/Lord_Howe"


@pytest.mark.parametrize("day", ["2026-04-05", "2026-10-04"])
def test_a_zone_that_changes_by_half_an_hour_loses_no_time(day):
    def of_day(expression):
        times = cron(expression, LORD_HOWE).times(instant(day) - 86_400_000)
        local = (datetime.fromtimestamp(at / 1000, ZoneInfo(LORD_HOWE)) for at in times)
        shown = (at.isoformat(" ", "minutes")[:16] for at in local)
        return [at for at in takewhile(lambda at: at < f"{day} 24", shown) if at >= day]

    assert of_day("* 8 * * *") == [f"{day} 08:{minute:02}" for minute in range(60)]
    two = "02:00" if day == "2026-04-05" else "02:30"
    assert of_day("0 */2 * * *")[:3] == [f"{day} {hour}" for hour in ("00:00", two, "04:00")]
    assert len(of_day("0 */2 * * *")) == 12


def by_force(expression, zone, start_ms, until_ms):
    """Compute times from the wall clock of each minute, instead of from the minutes of a date."""
    parsed = CronSim(expression, datetime(1970, 1, 1, tzinfo=UTC))
    minute, hour = expression.split()[:2]
    is_fixed = not (minute.startswith("*") or hour.startswith("*"))
    is_hourly = hour.startswith("*") and len(parsed.hours) == 24

    def matches(wall):
        days = parsed.match_dom(wall), parsed.match_dow(wall)
        is_day = all(days) if parsed.day_and else any(days)
        is_time = wall.minute in parsed.minutes and wall.hour in parsed.hours
        return is_day and is_time and wall.month in parsed.months

    found, before = [], None
    for at_ms in range(start_ms - 60_000, until_ms + 1, 60_000):
        wall = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))
        naive = wall.replace(tzinfo=None, fold=0)
        skipped = 0 if before is None or is_hourly else (naive - before) // timedelta(minutes=1) - 1
        is_moved = any(matches(before + timedelta(minutes=n + 1)) for n in range(skipped))
        if is_moved or (matches(naive) and not (is_fixed and wall.fold)):
            found.append(at_ms)
        before = naive
    return [at_ms for at_ms in found if at_ms > start_ms]


ZONE_CHANGES = [
    (LORD_HOWE, "2026-04-04T15:00"),  # by half an hour
    (LORD_HOWE, "2026-10-03T15:30"),
    ("Antarctica/Troll", "2025-03-30T01:00"),  # by two hours
    ("Antarctica/Troll", "2025-10-26T01:00"),
    ("America/Santiago", "2026-09-06T04:00"),  # at midnight
    ("America/Santiago", "2026-04-05T03:00"),
    ("America/St_Johns", "2010-03-14T03:31"),  # a minute after midnight
    ("America/St_Johns", "2010-11-07T02:31"),
    ("Pacific/Apia", "2011-12-30T10:00"),  # by a day
    ("America/New_York", "2026-11-01T06:00"),
]
TRICKY = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0 */2 * * *",
    "*/20 1-3 * * *",
    "15,45 0,23 * * *",
    "0 0 30 * *",
    "30 23 * * SAT",
    "5 */12 29-31 * *",
]


@pytest.mark.parametrize("expression", TRICKY)
@pytest.mark.parametrize(("zone", "change"), ZONE_CHANGES)
def test_times_around_a_clock_change_equal_those_of_the_wall_clock(expression, zone, change):
    start_ms = instant(change) - 40 * 3_600_000
    until_ms = instant(change) + 40 * 3_600_000
    times = takewhile(lambda at: at <= until_ms, cron(expression, zone).times(start_ms))
    assert list(times) == by_force(expression, zone, start_ms, until_ms)


def test_times_end_at_the_end_of_the_calendar():
    assert cron("* * * * *", "").after(instant("9999-12-31 23:59")) is None
    assert cron("* * * * *", VIENNA).after(1 << 62) is None
    assert cron("* * * * *", VIENNA).latest(1 << 61, 1 << 62) is None
    assert cron("0 0 29 2 *", VIENNA).latest(0, instant("1971-01-01")) is None


PATTERNS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 */3 * * *", "15 1,2,3 * * SUN", "0 0 1 * *"]
)
ZONES = st.sampled_from(["", VIENNA, "America/New_York", LORD_HOWE, "Asia/Kathmandu"])
YEAR_2024 = st.integers(instant("2024-01-01"), instant("2024-12-31"))


@settings(deadline=None, max_examples=50)
@given(PATTERNS, ZONES, YEAR_2024)
def test_computing_each_next_time_equals_iterating(expression, zone, at_ms):
    times = cron(expression, zone)
    through = list(islice(times.times(at_ms), 6))
    steps = []
    for _ in range(6):
        at_ms = times.after(at_ms)
        steps.append(at_ms)
    assert steps == through
    assert through == sorted(set(through))


@settings(deadline=None, max_examples=50)
@given(PATTERNS, ZONES, YEAR_2024, st.integers(0, 2 * 86_400_000))
def test_the_latest_time_of_a_span_equals_the_last_iterated_time(
    expression, zone, start_ms, span_ms
):
    times = cron(expression, zone)
    until_ms = start_ms + span_ms
    within = list(takewhile(lambda at_ms: at_ms <= until_ms, times.times(start_ms)))
    assert times.latest(start_ms, until_ms) == (within[-1] if within else None)


CHANGES = st.sampled_from(
    [
        (LORD_HOWE, "2026-04-04T15:00"),  # by half an hour
        (LORD_HOWE, "2026-10-03T15:30"),
        ("Antarctica/Troll", "2025-03-30T01:00"),  # by two hours
        ("Antarctica/Troll", "2025-10-26T01:00"),
        ("America/Santiago", "2026-09-06T04:00"),  # at midnight
        (VIENNA, "2026-03-29T01:00"),
        (VIENNA, "2026-10-25T01:00"),
    ]
)
AROUND = st.integers(-6 * 60, 6 * 60)
SPREAD = st.sampled_from(
    ["30 * * * *", "0 */2 * * *", "15 1,2,3 * * *", "* 2 * * *", "30 2 * * *", "0 0 * * *"]
)


@settings(deadline=None, max_examples=200)
@given(SPREAD, CHANGES, AROUND, st.integers(0, 26 * 60))
@example("30 * * * *", (LORD_HOWE, "2026-04-04T15:00"), 15, 600)
@example("15 1,2,3 * * *", ("Antarctica/Troll", "2025-10-26T01:00"), 120, 600)
def test_next_and_latest_times_equal_iterated_ones_around_clock_changes(
    expression, change, minutes, span
):
    times = cron(expression, change[0])
    until_ms = instant(change[1]) + minutes * 60_000
    start_ms = until_ms - span * 60_000
    through = times.times(start_ms - 3 * 86_400_000)
    within = [at_ms for at_ms in takewhile(lambda at: at <= until_ms, through) if at_ms > start_ms]
    assert times.latest(start_ms, until_ms) == (within[-1] if within else None)
    assert list(takewhile(lambda at: at <= until_ms, times.times(start_ms))) == within
