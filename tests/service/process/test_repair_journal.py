"""Repairs are counted, and a running node repairs its state at most every 10 minutes."""

from contextlib import suppress

from taskraft_service.process.repair_journal import (
    RESTARTS_PAUSE_SECONDS,
    RepairJournal,
    RepairKind,
)


def test_a_running_node_repairs_its_state_once_in_ten_minutes():
    now = [100.0]
    journal = RepairJournal(lambda: now[0])
    assert journal.may_restart()
    assert not journal.may_restart()
    now[0] += RESTARTS_PAUSE_SECONDS
    assert journal.may_restart()


def test_only_finished_repairs_are_counted():
    journal = RepairJournal()
    with journal.running(RepairKind.STATE):
        pass
    with suppress(ZeroDivisionError), journal.running(RepairKind.STATE):
        _ = 1 / 0
    (family,) = journal.collect()
    assert {sample.labels["part"]: sample.value for sample in family.samples} == {
        "state": 1,
        "log": 0,
        "member": 0,
    }
