"""Parsing of durations."""

from datetime import timedelta

import pytest

from taskraft._durations import milliseconds, seconds


@pytest.mark.parametrize(
    ("written", "expected_ms"),
    [
        (0, 0),
        (2, 2_000),
        (0.0015, 2),
        ("250ms", 250),
        ("10s", 10_000),
        ("1.5m", 90_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 172_800_000),
        ("7", 7_000),
        (timedelta(minutes=1, milliseconds=5), 60_005),
        (1e300, 2**63 - 1),
        (float("inf"), 2**63 - 1),
        ("999999999999999d", 2**63 - 1),
        (2**80, 2**63 - 1),
    ],
)
def test_a_duration_is_read_as_whole_milliseconds(written, expected_ms):
    assert milliseconds(written, "delay") == expected_ms


@pytest.mark.parametrize("nonsense", [-1, float("nan"), float("-inf")])
def test_a_negative_number_is_refused(nonsense):
    with pytest.raises(ValueError, match="delay must be a number of seconds from 0"):
        milliseconds(nonsense, "delay")


@pytest.mark.parametrize("nonsense", ["", "5 parsecs", "s", "-1s", "1s1", "1e3"])
def test_a_malformed_duration_is_refused_with_examples(nonsense):
    with pytest.raises(ValueError, match=r"delay must be .*1h30m"):
        milliseconds(nonsense, "delay")


@pytest.mark.parametrize("nonsense", [None, b"1s", True, object()])
def test_a_duration_of_a_wrong_type_is_refused(nonsense):
    with pytest.raises(TypeError, match=r"delay must be a number of seconds .* or a string"):
        milliseconds(nonsense, "delay")


def test_a_duration_can_be_converted_to_seconds_for_local_timers():
    assert seconds("250ms", "delay") == 0.25
