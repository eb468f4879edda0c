"""The check of a schedule at import refuses what the server refuses, and nothing else."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskraft.worker.schedule_times import check_cron, check_time_zone
from taskraft_service.languages.cron import CronMalformed, cron

VALUES = ("*", "0", "7", "29", "30", "31", "59", "60", "100", "L", "LW", "MON", "FEB", "2#2", "5L")
STEPS = ("", "/2", "/0", "/8", "/25", "/61", "/999")
FIELD = st.lists(
    st.builds(
        str.__add__, st.sampled_from((*VALUES, "1-5", "30-31", "5-1")), st.sampled_from(STEPS)
    ),
    min_size=1,
    max_size=3,
).map(",".join)
EXPRESSIONS = st.lists(FIELD, min_size=4, max_size=6).map(" ".join)
ZONES = (
    "",
    "UTC",
    "Europe/Vienna",
    "Europe",
    "Europe/Nowhere",
    "../../etc/passwd",
    "\0",
    "x" * 999,
)


def is_refused_by_server(expression, zone):
    try:
        cron(expression, zone)
    except CronMalformed:
        return True
    return False


def is_refused_at_import(check, text):
    try:
        check(text)
    except ValueError:
        return True
    return False


@given(EXPRESSIONS | st.text(max_size=300))
@example("0 0 31 2 *")
@example("0 0 31 4,6 *")
@example("0 0 31 2 */2")
@example("0 0 29 2 *")
@example("0 0 30 2 MON")
@example("1," * 200 + "1 * * * *")
@example(f"*/{'9' * 200} * * * *")
@example("30 2 * * *")
def test_an_expression_is_refused_if_and_only_if_the_server_refuses_it(expression):
    refused = is_refused_by_server(expression, "")
    assert is_refused_at_import(check_cron, expression) == refused


@pytest.mark.parametrize("zone", [*ZONES, "localtime", "posixrules", "Factory", "right/UTC"])
def test_a_time_zone_is_refused_if_and_only_if_the_server_refuses_it(zone):
    assert is_refused_at_import(check_time_zone, zone) == is_refused_by_server("* * * * *", zone)
