"""Log records that callers and peers cause are limited; omitted ones are counted."""

from taskraft_service.record_budget import RecordBudget


def test_a_burst_is_written_and_further_records_are_counted():
    now = 0.0
    budget = RecordBudget(3, 2.0, lambda: now)
    assert [budget.take() for _ in range(5)] == [0, 0, 0, None, None]
    now = 0.5
    assert [budget.take() for _ in range(2)] == [2, None]
    now = 100.0
    assert [budget.take() for _ in range(4)] == [1, 0, 0, None]
