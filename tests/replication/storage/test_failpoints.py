"""Failpoint rules: syntax, when they fire, and no wrapper without rules."""

import errno

import pytest

from taskraft_replication.storage.failing_filesystem import (
    FailingFileSystem,
    subject_of,
    with_failpoints,
)
from taskraft_replication.storage.failing_machine import machine_with_failpoints
from taskraft_replication.storage.failpoints import (
    NAMES,
    NO_FAILPOINTS,
    Action,
    Failpoints,
    FailpointUnknown,
    Rule,
    parse_rules,
)
from taskraft_replication.storage.filesystem import DiskFileSystem
from tests.replication.counting_machine import CountingMachine


def test_rules_say_where_what_and_when():
    text = "append.before_sync=kill@3, mark.after_write=stall:200@2+,state.before_flush=eio,"
    assert parse_rules(text) == (
        Rule("append.before_sync", Action.KILL, 0, 3, 3),
        Rule("mark.after_write", Action.STALL, 200, 2, float("inf")),
        Rule("state.before_flush", Action.EIO, 0, 1, 1),
    )
    assert parse_rules("") == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("append.before_snyc=kill", "append.before_snyc"),
        ("append.sync=kill", "append.sync"),
        ("append.before_sync=explode", "explode"),
        ("append.before_sync", "is not name=action"),
        ("append.before_sync=stall", "milliseconds"),
        ("append.before_sync=kill:5", "milliseconds"),
        ("append.before_sync=kill@0", "counted from 1"),
        ("append.before_sync=kill@3@4", "is not name=action"),
    ],
)
def test_what_is_unknown_is_refused(text, named):
    with pytest.raises(FailpointUnknown, match=named):
        parse_rules(text)


def test_a_rule_strikes_at_its_crossings_only():
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


def test_a_step_that_fails_is_not_followed_by_its_failpoint():
    failpoints = Failpoints()
    with pytest.raises(OSError, match="really"), failpoints.around("state", "apply"):
        raise OSError("really")
    assert failpoints.crossings == {"state.before_apply": 1}


@pytest.mark.parametrize(("action", "number"), [("eio", errno.EIO), ("enospc", errno.ENOSPC)])
def test_a_step_fails_as_the_disk_would_let_it_fail(tmp_path, action, number):
    failpoints = Failpoints(parse_rules(f"mark.before_write={action}"))
    file = with_failpoints(DiskFileSystem(tmp_path), failpoints).create("mark")
    with pytest.raises(OSError, match=r"failpoint mark\.before_write") as failure:
        file.write(0, b"x")
    assert failure.value.errno == number
    assert file.read(0, 1) == b"", "before the step is before it"
    file.write(0, b"x")
    file.close()


def test_without_rules_nothing_is_in_the_way(tmp_path):
    fs, machine = DiskFileSystem(tmp_path), CountingMachine()
    assert with_failpoints(fs, NO_FAILPOINTS) is fs
    assert machine_with_failpoints(machine, NO_FAILPOINTS) is machine


def test_a_file_without_a_name_for_its_steps_is_noticed():
    with pytest.raises(AssertionError, match="has no steps"):
        subject_of("raft-0/something_new")


def test_a_segment_is_appended_to_once_it_has_its_name(tmp_path):
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
