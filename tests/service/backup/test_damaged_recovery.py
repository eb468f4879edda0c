"""A survivor with damaged data continues with what is whole, and says what it gives up."""

import json
import os
import shutil
from contextlib import asynccontextmanager

import grpc
import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.types import LogIndex
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Metadata
from taskraft_service.api.rpc.status import reason_in
from taskraft_service.backup.recovery import RecoveryRefused, recovery_of
from taskraft_service.backup.remaining_state import describe_keys
from taskraft_service.cluster.lost_member import LostMemberRecord
from taskraft_service.cluster.member_identity import GROUP_ID
from taskraft_service.process.node_opener import replace_state
from taskraft_service.process.startup import open_machine
from taskraft_service.queue.store.keys import (
    FEED,
    GROUP,
    READY_ORDER,
    TASK,
    body_key,
    task_key,
    tube_key,
)
from taskraft_service.storage.directory import release_copies, set_aside
from tests.cluster.damaged_tables import break_tables_in
from tests.drill.volume_faults import damage_record, log_in
from tests.service.backup.test_recovery import YES, recover
from tests.service.conftest import config_in, create, put, running

pytestmark = pytest.mark.real_time

PUTS, TASKS_EACH = 40, 5
OLD_STATE = {"collect_entries": 100_000, "collect_ms": 600_000}
"""Settings with which the state lags far behind the log."""
SHORT_LOG = {
    "log_segment_bytes": 1 << 16,
    "log_flush_bytes": 100_000,
    "log_kept_entries": 10,
    "collect_entries": 5,
}
"""Settings with which the log does not reach back to the first entry."""
ORDER_TEXT = "the order of tasks of the tube emails"


async def fill(node):
    """Put tasks; return their ids."""
    await create(node)
    ids = []
    for _ in range(PUTS):
        ids += (await put(node, *(os.urandom(2000) for _ in range(TASKS_EACH)))).task_ids
    return ids


async def tasks_of(node):
    """Return the ids of all tasks; payloads are not read."""
    found, token = [], ""
    while True:
        answer = await node.tasks.ListTasks(
            pb.ListTasksRequest(tube="emails", page_size=100, page_token=token)
        )
        found += [task.id for task in answer.tasks]
        if not (token := answer.next_page_token):
            return found


@asynccontextmanager
async def crashed(tmp_path, **settings):
    """Yield the settings of a node that crashed with its newest state in memory, and its tasks."""
    config = config_in(tmp_path, **settings)
    async with running(config) as node:
        ids = await fill(node)
        shutil.copytree(config.data_dir, tmp_path / "copy")
    yield config.model_copy(update={"data_dir": tmp_path / "copy"}), ids


async def test_a_log_is_continued_up_to_its_first_damaged_entry(tmp_path):
    async with crashed(tmp_path, **OLD_STATE) as (config, ids):
        last = log_in(config.data_dir).last
        for index in (last - 10, last - 3):
            assert damage_record(config.data_dir, index)
        result = await recover(config, *YES, "-o", "json")
        assert result.exit_code == 0, result.output
        lost = f"log: entries {last - 10} to {last}"
        assert f"damaged on this node, and given up: {lost}" in result.stderr
        assert json.loads(result.stdout) == [
            {"index": str(last - 11), "removed": [], "lost": [lost]}
        ]
        async with running(config) as node:
            kept = await tasks_of(node)
            assert kept == ids[: len(kept)]
            assert len(kept) == len(ids) - 11 * TASKS_EACH
        again = await recover(config)
        assert "given up" not in again.output


@pytest.mark.parametrize("harm", ["cut", "no mark", "last entry"])
async def test_a_log_without_its_end_is_continued(tmp_path, harm):
    async with crashed(tmp_path, **OLD_STATE) as (config, ids):
        raft = config.data_dir / "raft-0"
        log = log_in(config.data_dir)
        match harm:
            case "cut":
                segment = max((raft / "log").glob("*.log"))
                place = log._places[log.last]
                segment.write_bytes(segment.read_bytes()[: place.offset + 20])
            case "no mark":
                (raft / "mark").unlink()
            case "last entry":
                damage_record(config.data_dir, log.last)
        result = await recover(config)
        assert result.exit_code == 0, result.output
        assert ("given up: log: entry" in result.output) == (harm != "no mark")
        async with running(config) as node:
            kept = await tasks_of(node)
            assert kept == (ids if harm == "no mark" else ids[:-TASKS_EACH])


async def test_nothing_changes_without_a_confirmation(tmp_path):
    async with crashed(tmp_path, **OLD_STATE) as (config, _):
        damage_record(config.data_dir, log_in(config.data_dir).last - 10)
        before = {
            path: path.read_bytes()
            for path in config.data_dir.rglob("*")
            if path.is_file() and path.name != "lock"
        }
        with recovery_of(config) as recovery:
            assert recovery.losses
        after = {path for path in config.data_dir.rglob("*") if path.is_file()}
        assert {path: path.read_bytes() for path in after if path.name != "lock"} == before


async def has_payload(node, task_id):
    """Return whether a payload can be read; otherwise, the call must say that it is damaged."""
    selector = task_pb2.TaskSelector(ids=[task_id])
    try:
        await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=selector))
    except grpc.aio.AioRpcError as error:
        return reason_in(error.trailing_metadata()) != "STATE_DAMAGED"
    return True


def set_state_aside(config, identity):
    """Move the state away, as a node does that asks the others for theirs."""
    replace_state(config, "a test")
    open_machine(config, identity).abandon()


async def test_a_state_that_was_set_aside_is_continued_although_it_is_damaged(tmp_path):
    config = config_in(tmp_path, **SHORT_LOG)
    async with running(config) as node:
        ids = await fill(node)
        identity = node.server.identity
    break_tables_in(config.data_dir)
    set_state_aside(config, identity)
    result = await recover(config)
    assert result.exit_code == 0, result.output
    assert "given up: state: payloads of the tasks" in result.output
    assert "of the tube emails" in result.output
    async with running(config) as node:
        readable = [task_id for task_id in ids if await has_payload(node, task_id)]
        assert 0 < len(readable) < len(ids)


async def test_a_released_copy_is_continued_if_the_state_is_lost_again(tmp_path):
    config = config_in(tmp_path)
    async with running(config) as node:
        ids = await fill(node)
    state = config.data_dir / "state"
    copy = set_aside(state)
    shutil.copytree(copy, state)
    release_copies(state)
    for manifest in state.glob("*/MANIFEST-*"):
        manifest.write_bytes(b"nonsense")
    result = await recover(config)
    assert result.exit_code == 0, result.output
    async with running(config) as node:
        assert await tasks_of(node) == ids


async def test_a_state_before_the_oldest_membership_is_refused_and_nothing_changes(tmp_path):
    """The membership at the state is unknown, although the log reaches back to the first entry."""
    config = config_in(tmp_path)
    async with running(config) as node:
        await fill(node)
    metadata = Metadata(DiskFileSystem(config.data_dir), f"raft-{GROUP_ID}")
    ((_, conf_state),) = metadata.memberships()
    metadata.save_memberships([(LogIndex(log_in(config.data_dir).last + 1), conf_state)])
    copy = set_aside(config.data_dir / "state")
    with (
        pytest.raises(RecoveryRefused, match="no state that can be opened and continued"),
        recovery_of(config),
    ):
        pass
    assert copy.exists()
    assert not (config.data_dir / "state").exists()


async def test_a_node_that_waited_to_be_replaced_is_not_replaced_any_more(tmp_path):
    async with crashed(tmp_path, **OLD_STATE) as (config, ids):
        record = LostMemberRecord(config.data_dir, GROUP_ID)
        record.begin("a test", config.node_name)
        assert (await recover(config)).exit_code == 0
        assert record.read() is None
        async with running(config) as node:
            assert await tasks_of(node) == ids


async def test_the_state_in_place_is_preferred_to_a_copy(tmp_path):
    config = config_in(tmp_path)
    async with running(config) as node:
        ids = await fill(node)
        shutil.copytree(config.data_dir / "state", config.data_dir / "state.damaged")
        await put(node, b"later")
    with recovery_of(config) as recovery:
        assert recovery.state.is_in_place
    assert (await recover(config)).exit_code == 0
    async with running(config) as node:
        assert len(await tasks_of(node)) == len(ids) + 1


async def test_a_node_without_a_state_that_opens_is_refused(tmp_path):
    config = config_in(tmp_path, **SHORT_LOG)
    async with running(config) as node:
        await fill(node)
        identity = node.server.identity
    for manifest in config.data_dir.glob("state/*/MANIFEST-*"):
        manifest.write_bytes(b"nonsense")
    set_state_aside(config, identity)
    with (
        pytest.raises(RecoveryRefused, match="no state that can be opened"),
        recovery_of(config),
    ):
        pass


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (task_key(1, 5), task_key(1, 9), "tasks 5 to 9 of the tube emails"),
        (body_key(1, 5), body_key(1, 5), "payloads of the tasks 5 to 5 of the tube emails"),
        (task_key(7, 5), task_key(7, 9), "tasks 5 to 9 of the tube number 7"),
        (task_key(1, 5), task_key(2, 9), "tasks"),
        (task_key(1, 5), tube_key(2), "tasks to tubes"),
        (FEED + b"xyz", FEED + b"xyzz", "the change feed"),
        (GROUP + bytes(8), TASK + bytes(3), "groups to tasks"),
        (READY_ORDER + bytes([0, 0, 0, 1, 5]), READY_ORDER + bytes([0, 0, 0, 1, 9]), ORDER_TEXT),
    ],
)
def test_lost_keys_are_named(first, last, text):
    assert describe_keys(first, last, {1: "emails"}.get) == text
