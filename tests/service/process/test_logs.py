"""Texts that callers and peers choose cannot end a line of the log or control a terminal."""

import io
import json
import logging

import pytest
import structlog

from taskraft_service.process.logs import one_line, set_up_logs

NASTY = 'a"}\n{"event": "managed", "principal": "root"}\r\x1b[2J\u2028\u202e\x85\ud800\x00'


@pytest.fixture
def stream():
    """The logs of the process are put back afterwards."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    yield io.StringIO()
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


def fail():
    raise ValueError(NASTY)


def everywhere():
    """Write a text through every way into the log."""
    log = structlog.get_logger("taskraft.audit")
    log.warning("denied", principal=NASTY, names=[NASTY], tubes={NASTY: NASTY})
    log.info(NASTY)
    logging.getLogger("foreign").warning("tube %s: %r", NASTY, NASTY)
    try:
        fail()
    except ValueError:
        log.exception(NASTY, principal=NASTY)
        logging.getLogger("foreign").exception(NASTY)


def test_json_records_are_one_line_each_whatever_they_contain(stream):
    set_up_logs("json", "info", NASTY, stream)
    everywhere()
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    records = [json.loads(line) for line in lines]
    assert len(records) == 5
    assert records[0]["principal"] == records[1]["event"] == records[3]["event"] == NASTY
    assert NASTY in records[3]["exception"]
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_a_terminal_gets_no_control_characters_and_no_lines_of_strangers(stream):
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
