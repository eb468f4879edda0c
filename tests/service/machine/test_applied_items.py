"""Entries that change many tasks are applied in several calls, so that other work runs between."""

from math import ceil

import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.selected_tasks import DELETE
from taskraft_service.command_codecs.tubes import TRUNCATE_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.machine.state_machine import APPLIED_ITEMS_MAX
from taskraft_service.queue.limits import Limits
from tests.service.machine.test_state_machine import entry, machine_in, puts, story


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


def test_one_call_applies_a_limited_number_of_steps_of_long_work(machine):
    machine.apply(story())
    machine.apply(puts(7, 7, 2 * APPLIED_ITEMS_MAX))
    truncate = tube_service_pb2.TruncateTubeRequest(name="t")
    machine.apply([entry(8, encode_leader_command(TRUNCATE_TUBE, truncate))])
    empty = [entry(index) for index in range(9, 50)]
    assert len(machine.apply(empty)) == ceil(APPLIED_ITEMS_MAX / Limits().steps_alone_max)
