"""A restore that ends at any step leaves an empty directory, or one that no node serves."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from taskraft_service.backup import restored_directory
from taskraft_service.backup.recovery import RecoveryRefused, recovery_of
from taskraft_service.backup.restore import restore_cluster
from taskraft_service.backup.restored_directory import RestoreRefused
from taskraft_service.cluster.interrupted_restore import MARK, is_restoring
from taskraft_service.cluster.member_identity import RestoreInterrupted, resolve_member_identity
from taskraft_service.process.startup import open_machine
from taskraft_service.storage.node_storage import NODE_STORAGE
from tests.failpoints.failing_storage import failing_storage
from tests.failpoints.failpoints import Action, Failpoints, Rule, perform
from tests.file_digests import file_digests
from tests.service.backup.test_backup import restored_in, saved, snapshot
from tests.service.conftest import create, put

pytestmark = pytest.mark.real_time

AFTER_THE_END = frozenset({("restoring.after_remove", 1), ("restoring.after_sync_directory", 2)})
"""Crossings at which the mark is removed, so that the restore is complete."""
SMALL_FILES = ("restoring", "pointer", "hard_state", "log_start", "membership", "identity")


class Killed(BaseException):
    """The process ends here: nothing is cleaned up."""


def kill(_rule):
    raise Killed


@pytest.fixture
async def file(node, tmp_path):
    await create(node)
    await put(node, b"a", b"b")
    return await saved(node, tmp_path / "f.snapshot")


def restored(file, config, storage=NODE_STORAGE):
    with file.open("rb") as content:
        return restore_cluster(content, config, storage=storage)


def failing(*rules, act=perform):
    return failing_storage(Failpoints(rules, act))


def steps_of(file, config, side):
    """Restore once without a fault; return its result, and each crossing of a failpoint.

    Args:
        file: the snapshot file.
        config: the settings of the node.
        side: "before": the failpoints before each step; "after": those after it.
    """
    counted = Failpoints()
    info = restored(file, config, failing_storage(counted))
    crossings = counted.crossings.items()
    return info, {
        (name, number)
        for name, last in crossings
        if f".{side}_" in name
        for number in range(1, last + 1)
    }


def killed_at(file, config, name, number, patched):
    """End a restore at the crossing of a failpoint, without any cleaning."""
    patched.setattr(restored_directory, "_undo", lambda *_, **__: None)
    with pytest.raises(Killed):
        restored(file, config, failing(Rule(name, Action.KILL, number, number), act=kill))


async def check_whole(config, info):
    """Check that a node finds the restored member and its state."""
    identity = await resolve_member_identity(config)
    assert (identity.member.member_id, identity.is_joining) == (1, True)
    machine = open_machine(config, identity)
    assert machine.applied_index == info.index
    assert machine.queue.task_counts()["emails"]
    machine.abandon()


@pytest.mark.shows_fault(
    "directory",
    "`taskraft snapshot restore` is killed at any step, and a node is started with its directory",
    "refuses to start, status 1, and changes nothing. The restore can be run again for the same"
    " directory, and removes the unfinished files first",
)
async def test_a_restore_that_is_killed_at_any_step_is_never_served(file, tmp_path, monkeypatch):
    info, steps = steps_of(file, restored_in(tmp_path / "whole")[0], "after")
    assert steps >= {*AFTER_THE_END, *((f"{name}.after_rename", 1) for name in SMALL_FILES)}
    for place, (name, number) in enumerate(sorted(steps)):
        config, _ = restored_in(tmp_path / f"{place}")
        with monkeypatch.context() as patched:
            killed_at(file, config, name, number, patched)
        if (name, number) in AFTER_THE_END:
            with pytest.raises(RestoreRefused, match="is not empty"):
                restored(file, config)
            await check_whole(config, info)
            continue
        before = file_digests(config.data_dir)
        with pytest.raises(RestoreInterrupted, match="run `taskraft snapshot restore` again"):
            await resolve_member_identity(config)
        with pytest.raises(RecoveryRefused, match="interrupted restore"), recovery_of(config):
            pass
        assert file_digests(config.data_dir) == before, (name, number)
        remains = config.data_dir / "state" / "a file of the killed restore"
        remains.parent.mkdir(exist_ok=True)
        remains.touch()
        await check_whole(config, restored(file, config))
        assert not remains.exists()


async def test_a_restore_that_fails_at_any_step_leaves_no_file(file, tmp_path):
    _, steps = steps_of(file, restored_in(tmp_path / "whole")[0], "before")
    for place, (name, number) in enumerate(sorted(steps)):
        config, _ = restored_in(tmp_path / f"{place}")
        config.data_dir.mkdir(parents=True)
        with pytest.raises(Exception, match=f"failpoint {name}"):
            restored(file, config, failing(Rule(name, Action.EIO, number, number)))
        assert not file_digests(config.data_dir), (name, number)


@pytest.mark.parametrize("name", ["restoring.before_write", "state.after_sync"])
async def test_a_second_restore_that_fails_keeps_the_mark(file, tmp_path, monkeypatch, name):
    config, _ = restored_in(tmp_path / "new")
    with monkeypatch.context() as patched:
        killed_at(file, config, "state.before_write", 1, patched)
    with pytest.raises(OSError, match=f"failpoint {name}"):
        restored(file, config, failing(Rule(name, Action.EIO)))
    assert is_restoring(config.data_dir)
    assert not (config.data_dir / "state").exists()
    await check_whole(config, restored(file, config))


async def test_a_kill_while_remains_are_removed_keeps_the_mark(file, tmp_path, monkeypatch):
    """The mark is the last file that the undoing of a failed restore removes."""
    config, _ = restored_in(tmp_path / "new")
    with monkeypatch.context() as patched:
        patched.setattr(restored_directory.shutil, "rmtree", kill)
        with pytest.raises(Killed):
            restored(file, config, failing(Rule("identity.before_create", Action.EIO)))
    assert (config.data_dir / MARK).exists()
    with pytest.raises(RestoreInterrupted):
        await resolve_member_identity(config)
    await check_whole(config, restored(file, config))


async def test_a_directory_in_use_is_not_restored_into_again(file, tmp_path, monkeypatch):
    """Another restore holds the lock, or has ended just before the lock was free."""
    config, _ = restored_in(tmp_path / "new")
    with restored_directory.restored_directory(config.data_dir):
        before = file_digests(config.data_dir)
        with pytest.raises(RestoreRefused, match="holds the lock"):
            restored(file, config)
        assert file_digests(config.data_dir) == before
    info = restored(file, config)
    before = file_digests(config.data_dir)
    checks = iter([lambda _: None, restored_directory._check_usable])

    def check(place):
        next(checks)(place)

    monkeypatch.setattr(restored_directory, "_check_usable", check)
    with pytest.raises(RestoreRefused, match="is not empty"):
        restored(file, config)
    assert file_digests(config.data_dir) == before
    await check_whole(config, info)


async def test_the_process_of_a_restore_is_killed(file, tmp_path):
    config, variables = restored_in(tmp_path / "new")
    environment = {**os.environ, **variables}

    async def run(*words, **settings):
        return await asyncio.to_thread(
            subprocess.run,
            words,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    command = (sys.executable, "-m", "tests.failpoints", "restore", file)
    killed = await run(*command, TASKRAFT_FAILPOINTS="identity.before_rename=kill")
    assert killed.returncode == -signal.SIGKILL
    before = file_digests(config.data_dir)
    served = await run(sys.executable, "-m", "taskraft_service.process")
    assert served.returncode == 1
    (line,) = [line for line in served.stderr.splitlines() if line.startswith("taskraft: ")]
    assert line == (
        f"taskraft: {config.data_dir} has the files of an interrupted restore, which are"
        " incomplete; run `taskraft snapshot restore` again, with this directory or with an empty"
        " one"
    )
    assert file_digests(config.data_dir) == before
    again = await snapshot("restore", file, **variables)
    assert again.exit_code == 0, again.output
    assert not is_restoring(config.data_dir)
