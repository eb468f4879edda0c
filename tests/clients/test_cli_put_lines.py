"""`taskraft put TUBE -`: repeated and interrupted runs."""

import json
import sys

import pytest

from taskraft import Tube
from taskraft.cli import put_lines
from taskraft.cli.progress import WorkProgress

LINES = [f'{{"n": {n}}}' for n in range(2_500)]
LINE = "put emails - --client-id mailing"


@pytest.fixture
def file(monkeypatch):
    monkeypatch.setattr(put_lines, "_input_file", lambda: "/data/emails.ndjson")


def tasks(run):
    return json.loads(run("stats emails -o jsonl").stdout)["tasks"]["ready"]


def text(lines):
    return "\n".join(lines) + "\n"


def test_a_second_run_with_the_same_file_puts_nothing_twice(run, file):
    first, again = [run(LINE, input=text(lines)) for lines in (LINES, ["", *LINES])]
    assert first.stdout == again.stdout == "emails/1 to emails/2500: 2500 tasks\n"
    assert tasks(run) == 2_500


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ([*LINES[:1_500], "7", *LINES[1_501:]], "1001 to 2000"),
        ([*LINES, "7"], "2001 to 2501"),
        (LINES[1:], "1 to 1000"),
    ],
    ids=["a line", "one more line", "one line less"],
)
def test_a_changed_file_is_refused(run, file, changed, lines):
    run(LINE, input=text(LINES))
    done = run(LINE, input=text(changed))
    assert f"lines {lines} were put before with another content" in done.stderr
    assert done.exit_code == 1
    assert tasks(run) == 2_500


@pytest.mark.parametrize("name", ["another application", "no file", "no client_id"])
def test_what_is_another_request_is_put_again(run, monkeypatch, file, name):
    run(LINE, input=text(LINES[:3]))
    line = {"another application": f"{LINE}-2", "no client_id": "put emails -"}.get(name, LINE)
    if name == "no file":
        monkeypatch.setattr(put_lines, "_input_file", lambda: "")
    run(line, input=text(LINES[:3]))
    assert tasks(run) == 6


def test_parts_are_bounded_by_their_size():
    lines = [put_lines.InputLine(n, bytes(put_lines.PART_BYTES // 2), 0) for n in range(1, 6)]
    found = put_lines.parts(iter(lines), lambda line: len(line.payload))
    parts = [[line.number for line in part] for part in found]
    assert parts == [[1, 2], [3, 4], [5]]


def test_an_interrupted_run_tells_how_many_tasks_were_put(run, monkeypatch, file):
    put_atomic = Tube.put_atomic

    def interrupted(self, payloads, **options):
        if payloads[0] == LINES[1_000].encode():
            raise KeyboardInterrupt
        return put_atomic(self, payloads, **options)

    monkeypatch.setattr(Tube, "put_atomic", interrupted)
    done = run(LINE, input=text(LINES))
    assert done.exit_code == 130
    assert done.stderr.startswith("at least 1000 tasks were put\n")


def test_the_name_of_the_input_is_that_of_its_file(monkeypatch, tmp_path):
    path = tmp_path / "lines"
    path.write_text("1\n")
    with path.open() as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        assert put_lines._input_file() in (str(path), str(path.resolve()))


def test_the_size_of_an_input_file_tells_how_much_is_left(monkeypatch, tmp_path):
    file = tmp_path / "lines"
    file.write_text("1\n" * 4)
    seen = []
    monkeypatch.setattr(WorkProgress, "is_possible", True)
    monkeypatch.setattr(WorkProgress, "examined", lambda _self, part: seen.append(part))
    with file.open() as opened, WorkProgress("putting") as progress:
        monkeypatch.setattr(sys, "stdin", opened)
        assert [line.payload for line in put_lines._counted(progress)] == [b"1"] * 4
    assert seen == [0.25, 0.5, 0.75, 1]
