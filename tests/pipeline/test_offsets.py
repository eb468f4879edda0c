"""Offsets: stored form, division of limits, division of ranges."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_pipeline.errors import OffsetInvalid
from taskraft_pipeline.offsets import (
    EVENTS_PER_TASK_MIN,
    Offset,
    Range,
    ranges,
    share_by_lag,
    split_into_tasks,
)

POSITIONS = st.dictionaries(st.integers(0, 1_500), st.integers(0, 2**62), max_size=20)


@given(st.text(), POSITIONS, st.randoms())
def test_an_offset_has_the_same_text_for_any_order_of_partitions(feed_id, positions, random):
    mixed = list(positions.items())
    random.shuffle(mixed)
    text = json.dumps(Offset(feed_id, positions).to_json())
    assert json.dumps(Offset(feed_id, dict(mixed)).to_json()) == text
    assert json.dumps(Offset.from_json(text).to_json()) == text
    assert Offset.from_json(json.loads(text)) == Offset(feed_id, positions)


def test_the_stored_form_of_an_offset_is_stable():
    offset = Offset("f", {10: 7, 2: 5})
    assert json.dumps(offset.to_json()) == '{"v": 1, "feed": "f", "p": {"002": 5, "010": 7}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest",
        "[]",
        "{}",
        '{"v": 2, "feed": "f", "p": {}}',
        '{"v": "1", "feed": "f", "p": {}}',
        '{"v": 1, "feed": 7, "p": {}}',
        '{"v": 1, "feed": "f", "p": []}',
        '{"v": 1, "feed": "f", "p": {"x": 1}}',
        '{"v": 1, "feed": "f", "p": {"001": -1}}',
        '{"v": 1, "feed": "f", "p": {"001": true}}',
        '{"v": 1, "feed": "f", "p": {"001": 1.5}}',
    ],
)
def test_a_malformed_offset_is_refused(text):
    with pytest.raises(OffsetInvalid):
        Offset.from_json(text)


def test_ranges_omit_empty_ones_and_start_new_partitions_at_0():
    assert ranges({0: 5, 1: 7}, {0: 9, 1: 7, 2: 3}) == [Range(0, 5, 9), Range(2, 0, 3)]


def test_a_range_does_not_go_back():
    with pytest.raises(OffsetInvalid, match="the end 4 is before the start 5"):
        ranges({0: 5}, {0: 4})


LAGS = st.dictionaries(st.integers(0, 40), st.integers(0, 10**9), max_size=16)


@given(st.integers(0, 10**10), LAGS)
def test_a_limit_is_used_up_and_no_part_exceeds_its_lag(limit, lags):
    parts = share_by_lag(limit, lags)
    assert sum(parts.values()) == min(limit, sum(lags.values()))
    assert all(0 <= parts[partition] <= lag for partition, lag in lags.items())


@given(st.integers(1, 10**6), LAGS)
def test_a_limit_is_shared_by_lag_up_to_one_event(limit, lags):
    total = sum(lags.values())
    parts = share_by_lag(limit, lags)
    if limit < total:
        assert all(abs(parts[one] - limit * lag / total) < 1 for one, lag in lags.items())


RANGES = st.lists(
    st.builds(
        lambda partition, start, events: Range(partition, start, start + events),
        st.integers(0, 9),
        st.integers(0, 10**12),
        st.integers(1, 200_000),
    ),
    max_size=8,
)


@given(RANGES, st.integers(100, 100_000))
def test_tasks_cover_the_ranges_once_and_in_order(whole, events_per_task):
    tasks = split_into_tasks(whole, events_per_task)
    pieces = [piece for task in tasks for piece in task]
    joined = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.partition == piece.partition and last.to_seq == piece.from_seq:
            joined[-1] = Range(last.partition, last.from_seq, piece.to_seq)
        else:
            joined.append(piece)
    assert sum(piece.events for piece in pieces) == sum(one.events for one in whole)
    assert {(one.partition, one.from_seq) for one in joined} <= {
        (one.partition, one.from_seq) for one in whole
    }
    assert all(sum(piece.events for piece in task) <= events_per_task for task in tasks)


def test_small_ranges_share_a_task_and_large_ones_are_cut_in_equal_pieces():
    small = EVENTS_PER_TASK_MIN // 2
    whole = [Range(0, 0, small), Range(1, 0, small), Range(2, 0, 500_001)]
    assert split_into_tasks(whole, 250_000) == [
        (Range(0, 0, small), Range(1, 0, small)),
        (Range(2, 0, 166_667),),
        (Range(2, 166_667, 333_334),),
        (Range(2, 333_334, 500_001),),
    ]


def test_without_ranges_there_are_no_tasks():
    assert split_into_tasks([], 250_000) == []
