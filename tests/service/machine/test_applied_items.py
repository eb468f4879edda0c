"""Entries that change many tasks are applied in several calls, so that other work runs between."""

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.selected_tasks import DELETE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.machine.state_machine import APPLIED_ITEMS_MAX
from tests.service.machine.test_state_machine import entry, machine_in, story


@pytest.fixture
def machine(tmp_path):
    one = machine_in(tmp_path / "state")
    yield one
    one.abandon()


def test_one_call_applies_entries_that_change_a_limited_number_of_tasks(machine):
    machine.apply(story())
    ids = range(1, APPLIED_ITEMS_MAX // 2 + 1)
    delete = pb.DeleteTasksRequest(tube="t", selector=task_pb2.TaskSelector(ids=ids))
    entries = [entry(index, encode_leader_command(DELETE, delete)) for index in range(7, 12)]
    calls = []
    while entries:
        calls.append(len(machine.apply(entries)))
        entries = entries[calls[-1] :]
        assert not machine.waits_for_members()
    assert calls == [2, 2, 1]
