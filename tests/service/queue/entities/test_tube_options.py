"""Invalid tube options are all named, and each limit of an option is exact."""

from dataclasses import replace

import pytest

from taskraft_service.limits import SUBQUEUE_BYTES_MAX
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.option_checks import (
    SUBQUEUE_WEIGHTS_MAX,
    refusal_of_options,
)
from taskraft_service.queue.entities.retry_policy import (
    ATTEMPTS_MAX,
    FACTOR_PERCENT_MAX,
    Exhausted,
    RetryPolicy,
    refusal_of_retry,
)
from taskraft_service.queue.entities.tube_options import (
    COUNT_MAX,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)

FIFO, FIFOTTL, LIM, UTUBE = TubeKind.FIFO, TubeKind.FIFOTTL, TubeKind.LIMFIFOTTL, TubeKind.UTUBETTL


def violations(kind, name, options, needs_capacity=True):
    """Return the invalid options, each with its fault."""
    refusal = refusal_of_options(name, kind, options, "options", needs_capacity=needs_capacity)
    found = refusal.violations if refusal is not None else ()
    return [(field.removeprefix("options."), text) for field, text in found]


def at_fault(kind=UTUBE, name="mail", needs_capacity=True, **options):
    options = replace(TubeOptions(), **options)
    return [path for path, _ in violations(kind, name, options, needs_capacity)]


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("delay_ms", 0, None),
        ("ttl_ms", 0, None),
        ("ttr_ms", 0, None),
        ("retain_ms", 0, None),
        ("capacity_tasks", 0, None),
        ("capacity_bytes", 0, None),
        ("buried_max", 0, None),
        ("concurrency", 0, COUNT_MAX),
        ("rate_per_second", 0, COUNT_MAX),
        ("subqueue_concurrency", 1, COUNT_MAX),
    ],
)
def test_a_number_is_checked_at_its_limits(field, low, high):
    assert at_fault(**{field: low}) == []
    assert at_fault(**{field: low - 1}) == [field]
    most = (1 << 62) if high is None else high
    assert at_fault(**{field: most}) == []
    if high is not None:
        assert at_fault(**{field: most + 1}) == [field]


def test_a_burst_is_checked_at_its_limits_and_needs_a_rate():
    assert at_fault(rate_per_second=1, rate_burst=COUNT_MAX) == []
    assert at_fault(rate_per_second=1, rate_burst=COUNT_MAX + 1) == ["rate_burst"]
    assert at_fault(rate_burst=1) == ["rate_burst"]


def test_a_rate_of_sub_queues_needs_a_kind_with_sub_queues():
    rate, burst = "subqueue_rate_per_second", "subqueue_rate_burst"
    for most in (COUNT_MAX, COUNT_MAX + 1):
        beyond = [] if most == COUNT_MAX else [rate, burst]
        assert at_fault(TubeKind.UTUBE, **{rate: most, burst: most}) == beyond
    assert at_fault(TubeKind.UTUBETTL, **{burst: 1}) == [burst]
    assert at_fault(TubeKind.FIFO, **{rate: 1}) == [rate]


def test_weights_are_limited_in_number_value_and_length_of_name():
    assert at_fault(subqueue_weights=(("ä" * (SUBQUEUE_BYTES_MAX // 2), 1), ("b", COUNT_MAX))) == []
    long = "ä" * (SUBQUEUE_BYTES_MAX // 2) + "a"
    found = at_fault(subqueue_weights=((long, 1), ("b", 0), ("c", COUNT_MAX + 1)))
    paths = [long[:32], "b", "c"]
    assert found == [f"subqueue_weights[{path}]" for path in paths]
    many = tuple((str(number), 1) for number in range(SUBQUEUE_WEIGHTS_MAX))
    assert at_fault(subqueue_weights=many) == []
    assert at_fault(subqueue_weights=(*many, ("one more", 1))) == ["subqueue_weights"]


def test_the_default_priority_is_within_the_range():
    assert at_fault(priority_min=5, priority=5, priority_max=5) == []
    assert at_fault(priority_min=5, priority=4, priority_max=9) == ["priority"]
    assert at_fault(priority_min=5, priority=10, priority_max=9) == ["priority"]
    assert at_fault(priority_min=6, priority=5, priority_max=5) == ["priority_min"]


def test_retention_needs_a_period():
    assert at_fault(on_ack=OnAck.RETAIN, retain_ms=FOREVER_MS - 1) == []
    assert at_fault(on_ack=OnAck.RETAIN, retain_ms=FOREVER_MS) == ["retain_ms"]
    assert at_fault(on_ack=OnAck.KEEP, retain_ms=FOREVER_MS) == []


def test_a_tube_cannot_be_its_own_dead_letter_tube():
    assert at_fault(name="mail", dead_letter_tube="mail") == ["dead_letter_tube"]
    assert at_fault(name="mail", dead_letter_tube="letters") == []


def test_a_limited_tube_needs_a_capacity_unless_its_profile_does_not():
    assert at_fault(LIM) == ["capacity_tasks"]
    assert at_fault(LIM, needs_capacity=False) == []
    assert at_fault(LIM, capacity_bytes=1) == at_fault(LIM, capacity_tasks=1) == []
    assert at_fault(FIFOTTL) == []


def test_options_that_a_kind_does_not_support_are_named():
    options = TubeOptions(
        higher_first=True,
        priority=1,
        ttl_scope=TtlScope.ALL,
        ttl_policy=TtlPolicy.RESET,
        subqueue_concurrency=2,
    )
    found = dict(violations(FIFO, "mail", options))
    assert {path: text.split(" is not supported ")[0] for path, text in found.items()} == {
        "priority_order": "HIGHER_FIRST",
        "priority": "1",
        "ttl_scope": "ALL",
        "ttl_policy": "RESET",
        "subqueue_concurrency": "2",
    }
    assert at_fault(FIFOTTL, priority=1, subqueue_concurrency=2) == ["subqueue_concurrency"]
    assert at_fault(TubeKind.UTUBE, priority=1, subqueue_concurrency=2) == ["priority"]


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("attempts_max", 0, ATTEMPTS_MAX),
        ("backoff_ms", 0, 1_000),
        ("backoff_ms_max", 0, 1 << 62),
        ("factor_percent", 100, FACTOR_PERCENT_MAX),
        ("jitter_percent", 0, 100),
    ],
)
def test_a_retry_policy_is_checked_at_its_limits(field, low, high):
    def wrong(number):
        given = {"backoff_ms": 0, "backoff_ms_max": 1_000, field: number}
        refusal = refusal_of_retry(RetryPolicy(**given), "", "retry")
        return {path.removeprefix("retry.") for path, _ in refusal.violations} if refusal else set()

    assert wrong(low) == wrong(high) == set()
    assert field in wrong(low - 1)
    if field != "backoff_ms_max":
        assert wrong(high + 1)


def test_a_retry_policy_is_consistent_with_itself_and_its_tube():
    assert at_fault(retry=RetryPolicy(backoff_ms=7, backoff_ms_max=7)) == []
    assert at_fault(retry=RetryPolicy(backoff_ms=8, backoff_ms_max=7)) == ["retry.backoff_ms_max"]
    last = RetryPolicy(1, exhausted=Exhausted.DEAD_LETTER)
    assert at_fault(retry=last) == ["retry.exhausted"]
    assert at_fault(retry=last, dead_letter_tube="letters") == []
    assert refusal_of_retry(last, None, "retry") is None, (
        "the dead-letter tube of a task's tube is not known here"
    )


def test_all_faults_are_reported_at_once():
    found = at_fault(
        FIFO, delay_ms=-1, concurrency=-1, rate_burst=3, retry=RetryPolicy(factor_percent=-1)
    )
    expected = ["concurrency", "delay_ms", "delay_ms", "rate_burst"]
    assert sorted(path for path in found if "." not in path) == expected
    assert set(found) - set(expected) == {"retry.factor_percent"}
