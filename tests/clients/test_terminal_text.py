"""Texts with control characters reach a terminal escaped, and programs read them unchanged."""

import json

import pytest
import yaml

from taskraft.cli.output import json_text, terminal_text, write_values

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
