"""Hostile texts take linear time in each language that a caller can send.

The tests count the calls of Python and C functions in the parsers, so that the speed of the machine
does not matter. ``test_patterns`` counts tube patterns.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_service.api.rpc.paging import is_page_token
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.languages.cron import EXPRESSION_BYTES_MAX, CronMalformed, cron
from taskraft_service.languages.filter_text import (
    _NESTING,
    FILTER_CHARACTERS_MAX,
    FilterMalformed,
    read_filter,
)
from tests.service.counted_calls import calls_of

CRON_CALLS_MAX = 10_000
CALLS_PER_CHARACTER_MAX = 20
"""Maximum number of calls per character. A filter of repeated ``not`` needs about 14 calls."""


def read_any_filter(text):
    read_filter.cache_clear()
    with contextlib.suppress(FilterMalformed):
        read_filter(text)


HOSTILE_FILTERS = {
    "open parentheses": "(",
    "closed parentheses": "(id=1) ",
    "negations": "not ",
    "comparisons": "id=1 AND ",
    "changing operators": "id=1 AND id=2 OR ",
    "stars": "type=*a*a*a*a AND ",
    "quotes": '"',
    "escaped quotes": '\\"',
    "backslashes": "\\",
    "names": "a.",
    "digits": "9",
    "spaces": " ",
}


@pytest.mark.parametrize("piece", HOSTILE_FILTERS.values(), ids=HOSTILE_FILTERS)
@pytest.mark.parametrize("start", ["", "id=", 'type="', "(" * 30])
def test_a_filter_takes_a_limited_number_of_calls_per_character(start, piece):
    text = (start + piece * FILTER_CHARACTERS_MAX)[:FILTER_CHARACTERS_MAX]
    read_any_filter(text)  # The first call fills caches of the parser.
    whole = calls_of(read_any_filter, text)
    half = calls_of(read_any_filter, text[: FILTER_CHARACTERS_MAX // 2])
    assert whole <= CALLS_PER_CHARACTER_MAX * FILTER_CHARACTERS_MAX
    assert whole <= 2.5 * half + 500, "twice the text costs twice the calls"


@given(st.text('"\\()a\n', max_size=40))
def test_the_depth_check_reads_each_quote_once(text):
    """A scan that begins at a quote never fails, so no character is read by a second scan."""
    ends = [found.end() for found in _NESTING.finditer(text)]
    quoted = [found.span() for found in _NESTING.finditer(text) if found[0].startswith('"')]
    for position, character in enumerate(text):
        if character == '"':
            assert any(begin <= position < end for begin, end in quoted)
    assert ends == sorted(ends)


def test_a_filter_longer_than_the_limit_is_refused_before_it_is_parsed():
    assert calls_of(read_any_filter, "(" * 10_000_000) < 100


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 29 2 1#1",
        "59 23 29 2 6",
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 L 2 7#5",
        "* * * * *",
        f"{','.join(['*/1'] * 60)} * * * *",
        "0 0 " + ",".join(["1"] * 120) + " * *",
    ],
)
@pytest.mark.parametrize("time_zone", ["", "America/New_York", "Australia/Lord_Howe"])
def test_a_cron_expression_takes_a_limited_number_of_calls(expression, time_zone):
    def plan():
        cron.cache_clear()
        try:
            times = cron(expression[:EXPRESSION_BYTES_MAX], time_zone)
        except CronMalformed:
            return
        times.after(1_700_000_000_000)
        times.latest(0, 1_700_000_000_000)

    assert calls_of(plan) < CRON_CALLS_MAX


@pytest.mark.parametrize("name", ["a" * 1_000_000, "../" * 100_000, "Europe/" * 1_000, "\0", "é"])
def test_an_unknown_time_zone_takes_a_limited_number_of_calls(name):
    def read():
        with pytest.raises(CronMalformed):
            cron("* * * * *", name)

    read()  # The first call imports the time-zone data.
    assert calls_of(read) < 1_000


def test_a_page_token_takes_a_limited_number_of_calls():
    for token in ("=" * 1_000_000, "A" * 1_000_001, "AAA=" * 250_000):
        assert calls_of(is_page_token, token) < 50


def test_a_unique_key_takes_a_limited_number_of_calls():
    violations = Violations()
    assert calls_of(violations.check_unique_key, "key", ["k" * 1_000_000] * 100) < 1_000
