"""Texts with control characters reach a terminal escaped, and programs read them unchanged."""

import json

import pytest
import yaml
from click.testing import CliRunner

from taskraft.cli import main
from taskraft.cli.failures import tell
from taskraft.cli.output import json_text, write_table, write_values
from taskraft.cli.terminal_text import terminal_text

HOSTILE = "a\u202eb\x7fc\x9bd\x1b[2Je\u2066f\u200bg\ufeff ü 漢\n: #"
VALUES = [{"name": HOSTILE, HOSTILE: "plain ü", "count": 5}]


def is_safe(text):
    return all(each.isprintable() or each == "\n" for each in text)


@pytest.mark.parametrize("output", ["json", "jsonl", "yaml"])
def test_control_characters_are_escaped_without_loss(output, capsys):
    write_values(VALUES, output)
    text = capsys.readouterr().out
    assert is_safe(text)
    assert "ü" in text
    read = {"json": json.loads, "jsonl": lambda line: [json.loads(line)], "yaml": yaml.safe_load}
    assert read[output](text) == VALUES


def test_a_line_of_an_export_is_read_back_unchanged():
    line = json_text({"payload": HOSTILE})
    assert is_safe(line)
    assert json.loads(line) == {"payload": HOSTILE}


def test_a_line_for_people_has_no_control_characters():
    shown = terminal_text(f"mail{HOSTILE}/7")
    assert shown.isprintable()
    assert "\\u202e" in shown


def test_cells_of_a_table_and_fields_of_a_template_are_escaped(capsys):
    write_table(("NAME", "COUNT"), [(HOSTILE, 5)])
    write_values([{"name": HOSTILE}], "template={name}")
    text = capsys.readouterr().out
    assert is_safe(text)
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    "line",
    [
        "task show emails 1",
        "task list emails",
        "task list emails -o wide",
        "task list emails -o 'template={failure.message}'",
        "task explain emails 1",
        "task history emails 1",
        "feed tail emails --from-start --no-follow",
    ],
)
def test_the_reason_of_a_failure_controls_no_terminal(run, emails, line):
    emails.put("a")
    emails.take().reject(reason=HOSTILE)
    done = run(line, color=True)
    assert (done.exit_code, is_safe(done.output)) == (0, True), done.output
    assert "\\u001b[2J" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["ack", HOSTILE],
        ["task", "show", "emails", HOSTILE],
        ["task", "list", HOSTILE],
        ["frobnicate" + HOSTILE],
        ["import", "emails"],
    ],
)
def test_an_error_is_one_line_without_control_characters(emails, words):
    line = json.dumps({"format": "taskraft.task.v2", HOSTILE: 1})
    done = CliRunner().invoke(main, words, input=line, color=True)
    assert done.exit_code == 2, done.output
    assert is_safe(done.stderr)
    assert [each[:6] for each in done.stderr.splitlines()] in (["error:"], ["error:", "hint: "])


def test_a_long_error_keeps_its_beginning_and_its_end(capsys):
    tell("x" * 5_000 + " is wrong")
    text = capsys.readouterr().err
    assert (text[:3], text[-10:], len(text)) == ("xxx", " is wrong\n", 2_002)
