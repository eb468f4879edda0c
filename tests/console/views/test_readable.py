"""Numbers, durations and texts for people."""

import pytest

from taskraft_console.views.readable import (
    exact_duration,
    iso_time,
    plain_text,
    readable_bytes,
    readable_count,
    readable_duration,
    readable_rate,
    readable_time,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9 999"), (99_999, "99 999"), (100_000, "100.0 k"), (2_500_000, "2.5 M")],
)
def test_a_count_is_exact_below_100_000(number, text):
    assert readable_count(number).replace("\u2009", " ") == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (1_500, "1500ms"),
        (90_000, "90s"),
        (3_600_000, "1h"),
        (90_000_000, "25h"),
        (172_800_000, "2d"),
    ],
)
def test_an_exact_duration_is_whole_in_its_unit(duration_ms, text):
    assert exact_duration(duration_ms) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(None, "\u2013"), (0, "0"), (0.01, "<0.1"), (2.0, "2"), (2.34, "2.3")]
)
def test_a_rate_above_zero_is_never_shown_as_zero(rate, text):
    assert readable_rate(rate) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (3, "3 ms"),
        (1_200, "1.2 s"),
        (51_000, "51 s"),
        (845_000, "14m 05s"),
        (7_800_000, "2h 10m"),
        (273_600_000, "3d 04h"),
        (86_400_000, "1d"),
    ],
)
def test_a_duration_has_at_most_two_units(duration_ms, text):
    assert readable_duration(duration_ms).replace("\u2009", " ") == text


def test_sizes_and_times():
    assert readable_bytes(999).replace("\u2009", " ") == "999 B"
    assert readable_bytes(1_250).replace("\u2009", " ") == "1.2 kB"
    assert readable_time(0) == "\u2013"
    assert readable_time(1_000) == "1970-01-01 00:00:01 UTC"
    assert iso_time(1_000) == "1970-01-01T00:00:01.000+00:00"
    assert (readable_time(2**62), iso_time(2**62)) == ("never", "")


def test_control_characters_become_visible():
    assert plain_text("a\u0007b\u202ec") == "a␇b⟨202E⟩c"
    assert plain_text("abcdef", 4) == "abc…"


def test_the_space_in_numbers_and_durations_is_no_control_character():
    assert plain_text(readable_duration(90_000)) == readable_duration(90_000)
    assert plain_text("a\u2003b") == "a⟨2003⟩b"
