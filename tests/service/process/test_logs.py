"""Texts from callers and peers cannot break a line of the log or control a terminal."""

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from taskraft_service.access.audit import AUDIT_LOGGER
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.process.logs import one_line, set_up_logs, switch_debug
from tests.turns import blocked_until
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

NASTY = 'a"}\n{"event": "managed", "principal": "root"}\r\x1b[2J\u2028\u202e\x85\ud800\x00'


@pytest.fixture
def stream():
    """Restore the logging of the process after the test."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    yield io.StringIO()
    auditor = logging.getLogger(AUDIT_LOGGER)
    for handler in auditor.handlers:
        handler.close()
    auditor.handlers, auditor.propagate = [], True
    auditor.setLevel(logging.NOTSET)
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


def fail():
    raise ValueError(NASTY)


def everywhere():
    """Write a text through every path into the log."""
    log = structlog.get_logger("taskraft.audit")
    log.warning("denied", principal=NASTY, names=[NASTY], tubes={NASTY: NASTY})
    log.info(NASTY)
    logging.getLogger("foreign").warning("tube %s: %r", NASTY, NASTY)
    try:
        fail()
    except ValueError:
        log.exception(NASTY, principal=NASTY)
        logging.getLogger("foreign").exception(NASTY)


def test_the_level_switches_to_debug_and_back(stream):
    set_up_logs("json", "warning", "n1", stream)
    for _ in range(2):
        logging.getLogger("taskraft_service").debug("detail")
        switch_debug("warning")
    logging.getLogger("taskraft_service").info("detail")
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one.get("to")) for one in records] == [
        ("the log level changed", "debug"),
        ("detail", None),
        ("the log level changed", "warning"),
    ]


def test_sigusr1_switches_the_level_of_a_running_node(tmp_path):
    with LocalCluster(1, tmp_path / "c1", {"TASKRAFT_LOG_LEVEL": "warning"}) as cluster:
        (node,) = cluster.nodes
        os.kill(node.pid, signal.SIGUSR1)
        blocked_until(lambda: '"to": "debug"' in node.log.read_text())
        assert node.stop() == 0
    assert '"event": "stopped"' in node.log.read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "taskraft_service.process"),
        ("-c", "from taskraft.cli import main; main()", "serve"),
    ],
)
def test_sigusr1_during_the_start_takes_effect_later(tmp_path, command):
    environment = {
        **os.environ,
        "TASKRAFT_DATA_DIR": str(tmp_path / "data"),
        "TASKRAFT_LOG_LEVEL": "warning",
        **{f"TASKRAFT_{port}": "127.0.0.1:0" for port in ("LISTEN", "PEER_LISTEN", "HTTP_LISTEN")},
    }
    with subprocess.Popen(
        [sys.executable, *command], env=environment, stderr=subprocess.PIPE, text=True
    ) as node:
        blocked_until(lambda: node.poll() is not None or handles_sigusr1(node.pid))
        node.send_signal(signal.SIGUSR1)
        assert any('"to": "debug"' in line for line in node.stderr)
        node.terminate()
        node.stderr.read()
    assert node.returncode == 0


def handles_sigusr1(pid):
    """Return whether a process blocks or catches the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"^Sig(?:Blk|Cgt):\s+(\w+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGUSR1 - 1) & 1 for mask in masks)


def test_json_records_have_one_line_each_for_any_text(stream):
    set_up_logs("json", "info", NASTY, stream)
    everywhere()
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    records = [json.loads(line) for line in lines]
    assert len(records) == 5
    assert records[0]["principal"] == records[1]["event"] == records[3]["event"] == NASTY
    assert NASTY in records[3]["exception"]
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_a_terminal_gets_no_control_characters_and_no_injected_lines(stream):
    set_up_logs("console", "info", NASTY, stream)
    everywhere()
    shown = stream.getvalue()
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[35m"):
        shown = shown.replace(style, "")
    for style in ("\x1b[36m", "\x1b[31;1m", "\x1b[34m"):
        shown = shown.replace(style, "")
    assert all(text.isprintable() for text in shown.split("\n"))
    lines = shown.splitlines()
    assert [line for line in lines if line.startswith('{"event"')] == []
    assert sum(line.startswith("20") for line in lines) == 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tube é", "tube é"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[0m", "\\x1b[0m"),
        ("\u2028", "\\u2028"),
    ],
)
def test_a_text_becomes_one_line(text, shown):
    assert one_line(text) == shown


def records_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_the_audit_log_is_a_separate_file(stream, tmp_path):
    path = tmp_path / "audit.log"
    path.write_text('{"event": "before"}\n')
    set_up_logs("console", "error", "n1", stream, str(path))
    everywhere()
    written = records_of(path.read_text())
    assert [record["event"] for record in written] == ["before", "denied", NASTY, NASTY]
    assert written[1]["node"] == "n1"
    assert "denied" not in stream.getvalue()
    moved = path.rename(tmp_path / "audit.1")
    structlog.get_logger("taskraft.audit").info("managed")
    assert [record["event"] for record in records_of(path.read_text())] == ["managed"]
    assert len(records_of(moved.read_text())) == 4


def test_a_new_audit_log_is_private(stream, tmp_path):
    path = tmp_path / "audit.log"
    set_up_logs("json", "info", "n1", stream, str(path))
    assert path.stat().st_mode & 0o007 == 0


def test_the_audit_log_has_a_separate_descriptor(stream):
    reading, writing = os.pipe()
    set_up_logs("json", "info", "n1", stream, f"fd:{writing}")
    structlog.get_logger("taskraft.audit").info("managed", principal=NASTY)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        (record,) = records_of(pipe.read())
    assert (record["event"], record["principal"]) == ("managed", NASTY)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("place", ["/nowhere/audit.log", "/", "fd:987", "fd:0"])
def test_an_audit_log_that_cannot_be_written_is_refused_at_the_start(stream, place):
    with pytest.raises(ConfigInvalid, match=f"^audit_log: cannot open {place}: "):
        set_up_logs("json", "info", "n1", stream, place)


def test_lost_audit_records_are_reported_and_fail_no_call(stream, tmp_path):
    path = tmp_path / "audits" / "audit.log"
    path.parent.mkdir()
    set_up_logs("json", "info", "n1", stream, str(path))
    path.unlink()
    path.parent.rmdir()
    for _ in range(3):
        structlog.get_logger("taskraft.audit").info("managed")
    (complaint,) = records_of(stream.getvalue())
    assert complaint["event"] == "the audit log cannot be written"
    assert "No such file" in complaint["reason"]
