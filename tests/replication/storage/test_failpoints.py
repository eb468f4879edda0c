"""Failpoint rules: syntax, and when they fire."""

import errno

import pytest

from taskraft_replication.storage.filesystem import DiskFileSystem
from tests.failpoints.failing_filesystem import FailingFileSystem, subject_of
from tests.failpoints.failpoints import (
    NAMES,
    Action,
    Failpoints,
    FailpointUnknown,
    Rule,
    parse_rules,
)


def test_a_rule_has_a_step_an_action_and_a_count():
    text = "append.before_sync=kill@3, mark.after_write=enospc@2+,state.before_flush=eio,"
    assert parse_rules(text) == (
        Rule("append.before_sync", Action.KILL, 3, 3),
        Rule("mark.after_write", Action.ENOSPC, 2, float("inf")),
        Rule("state.before_flush", Action.EIO, 1, 1),
    )
    assert parse_rules("") == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("append.before_snyc=kill", "append.before_snyc"),
        ("append.sync=kill", "append.sync"),
        ("append.before_sync=explode", "explode"),
        ("append.before_sync", "is not name=action"),
        ("append.before_sync=kill:5", "is not name=action"),
        ("append.before_sync=kill@0", "counted from 1"),
        ("append.before_sync=kill@3@4", "is not name=action"),
    ],
)
def test_an_unknown_rule_is_refused(text, named):
    with pytest.raises(FailpointUnknown, match=named):
        parse_rules(text)


def test_a_rule_fires_only_at_its_counts():
    struck = []
    failpoints = Failpoints(
        parse_rules("state.before_apply=kill@2,state.after_apply=eio@3+"),
        lambda rule: struck.append((rule.name, failpoints.crossings[rule.name])),
    )
    for _ in range(4):
        with failpoints.around("state", "apply"):
            pass
    assert struck == [
        ("state.before_apply", 2),
        ("state.after_apply", 3),
        ("state.after_apply", 4),
    ]


def test_a_step_that_fails_does_not_reach_its_failpoint():
    failpoints = Failpoints()
    with pytest.raises(OSError, match="really"), failpoints.around("state", "apply"):
        raise OSError("really")
    assert failpoints.crossings == {"state.before_apply": 1}


@pytest.mark.parametrize(("action", "number"), [("eio", errno.EIO), ("enospc", errno.ENOSPC)])
def test_an_injected_failure_raises_the_error_of_a_real_disk(tmp_path, action, number):
    failpoints = Failpoints(parse_rules(f"mark.before_write={action}"))
    file = FailingFileSystem(DiskFileSystem(tmp_path), failpoints).create("mark")
    with pytest.raises(OSError, match=r"failpoint mark\.before_write") as failure:
        file.write(0, b"x")
    assert failure.value.errno == number
    assert file.read(0, 1) == b"", "the failpoint fires before the write"
    file.write(0, b"x")
    file.close()


def test_a_file_without_named_steps_is_an_error():
    with pytest.raises(AssertionError, match="has no steps"):
        subject_of("raft-0/something_new")


def test_a_segment_is_appended_to_only_after_its_rename(tmp_path):
    failpoints = Failpoints()
    fs = FailingFileSystem(DiskFileSystem(tmp_path), failpoints)
    fs.make_directory("log")
    file = fs.create("log/1.log.new")
    file.write(0, b"x")
    fs.rename("log/1.log.new", "log/1.log")
    fs.sync_directory("log")
    file.write(1, b"y")
    fs.remove("log/1.log")
    fs.sync_directory("log")
    passed = ["segment.after_create", "segment.after_write", "segment.after_rename"]
    passed += ["segment.after_sync_directory", "append.after_write"]
    passed += ["trim.after_remove", "trim.after_sync_directory", "directory.after_make"]
    assert set(passed) == {name for name in failpoints.crossings if ".after_" in name}
    assert set(passed) <= NAMES
    file.close()
