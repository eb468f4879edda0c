"""Check that the core behaves as the traces say, and that the comparison detects differences."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.raft_traces.interaction import COMMANDS
from tests.raft_traces.options import OPTIONS
from tests.raft_traces.records import UnreadableOutput, is_log_line, read_records
from tests.raft_traces.replay import player_of, replay
from tests.raft_traces.script import parse_script

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests" / "scenarios" / "raft"
UPSTREAM = ROOT.parent / "shared" / "raft-traces"


def paths_of(directory):
    paths = sorted(directory.rglob("*.txt"))
    if paths:
        return [pytest.param(path, id=str(path.relative_to(directory))) for path in paths]
    missing = pytest.mark.skip(reason=f"{directory} is not here")
    return [pytest.param(directory, marks=missing, id="absent")]


@pytest.mark.parametrize("path", paths_of(OWN))
def test_the_core_matches_our_scenario(path):
    assert replay(path) is None


@pytest.mark.parametrize("path", paths_of(UPSTREAM))
def test_the_core_matches_the_upstream_trace(path):
    assert replay(path) is None


def plain(output):
    """Return the lines of an output without log lines and without lines that mean "no output"."""
    lines = [line.rstrip() for line in output.splitlines()]
    return [each for each in lines if not is_log_line(each) and each not in {"ok", "ok (quiet)"}]


@pytest.mark.parametrize("path", [*paths_of(OWN), *paths_of(UPSTREAM)])
def test_outputs_differ_only_in_log_lines(path):
    """No trace depends on the layout or the order of fields; the comparison ignores both too."""
    directives = parse_script(path)
    player = player_of(directives)
    for directive in directives:
        assert plain(player.run(directive)) == plain(directive.expected), directive.line


def test_our_scenarios_use_each_command_and_option():
    directives = [each for path in OWN.rglob("*.txt") for each in parse_script(path)]
    assert {each.command for each in directives} == COMMANDS
    used = {(each.command, option) for each in directives for option in each.options}
    known = {(command, option) for command, options in OPTIONS.items() for option in options}
    assert used - {("stabilize", "log-level")} == known


@pytest.mark.parametrize("path", paths_of(OWN))
def test_a_changed_number_in_the_output_changes_the_records(path):
    for directive in parse_script(path):
        lines = directive.expected.splitlines()
        for position, line in enumerate(lines):
            if re.match(r"\s*(INFO|DEBUG)", line) or not re.search(r"\d", line):
                continue
            changed = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), line, count=1)
            altered = "\n".join([*lines[:position], changed, *lines[position + 1 :]])
            if line.strip().startswith(("voters=", "?", "x", ">")) and "handling" not in line:
                continue
            try:
                assert read_records(altered) != read_records(directive.expected), line
            except UnreadableOutput:
                pytest.fail(f"{line!r} is not understood")


@pytest.mark.parametrize(
    ("output", "other"),
    [
        ("1->2 MsgApp Term:1 Log:1/11 Commit:11", "1->2 MsgApp Term:1 Log:1/11"),
        ('1/3 EntryNormal ""', '1/3 EntryNormal "x"'),
        ("1/3 EntryConfChangeV2 v1", "1/3 EntryConfChangeV2 v1 v2"),
        ("Ready MustSync=true:", "Ready MustSync=false:"),
        ("<empty Ready>", "Ready MustSync=false:"),
        ("INFO 1 became leader at term 1", "INFO 1 became leader at term 2"),
        ("INFO 1 became leader at term 1", ""),
        ("INFO 1 switched to configuration voters=(1 2)", "ok"),
        ("1: StateProbe match=0 next=1 paused", "1: StateProbe match=0 next=1"),
        ("1: StateProbe match=0 next=1 inactive", "1: StateProbe match=0 next=1"),
        ("raft proposal dropped", "ok"),
        ("dropped: 1->2 MsgVote Term:1 Log:0/0", "1->2 MsgVote Term:1 Log:0/0"),
        (
            "1->2 MsgApp Term:1 Log:0/0 Responses:[\n  2->1 MsgAppResp Term:1 Log:0/3\n]",
            "1->2 MsgApp Term:1 Log:0/0\n2->1 MsgAppResp Term:1 Log:0/3",
        ),
    ],
)
def test_outputs_with_different_facts_have_different_records(output, other):
    assert read_records(output) != read_records(other)


@pytest.mark.parametrize(
    ("output", "other"),
    [
        ("INFO 1 is starting a new election at term 0", ""),
        ("DEBUG whatever", "INFO something else"),
        ("> 1 handling Ready\n  <empty Ready>", "> 1 handling Ready\n<empty Ready>"),
        (
            '1->2 MsgApp Term:1 Log:0/0 Entries:[\n    1/1 EntryNormal "["\n  ]',
            '1->2 MsgApp Term:1 Log:0/0 Entries:[1/1 EntryNormal "["]',
        ),
    ],
)
def test_log_lines_without_facts_and_layout_are_ignored(output, other):
    assert read_records(output) == read_records(other)


def test_an_unknown_line_is_refused():
    with pytest.raises(UnreadableOutput):
        read_records("the weather is fine")


def run(directory):
    command = [sys.executable, "-m", "tests.raft_traces", str(directory)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.real_time
def test_the_command_names_each_file_that_differs(tmp_path):
    good = "add-nodes 1 voters=(1) index=2\n----\nINFO 1 became follower at term 0\n"
    good += "INFO 1 switched to configuration voters=(1)\n"
    (tmp_path / "good.txt").write_text(
        "log-level none\n----\nok\n\nadd-nodes 1 voters=(1) index=2\n----\nok\n"
    )
    (tmp_path / "bad.txt").write_text(good)
    (tmp_path / "broken.txt").write_text("add-nodes 1\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert f"ok    {tmp_path}/good.txt" in done.stdout
    assert f"DIFF  {tmp_path}/bad.txt:1: add-nodes: expected" in done.stdout
    assert f"DIFF  {tmp_path}/broken.txt:1: is no script" in done.stdout
    assert "3 files, 2 differ" in done.stdout


@pytest.mark.real_time
def test_the_command_fails_without_any_file(tmp_path):
    assert run(tmp_path).returncode == 2


def difference(tmp_path, script):
    path = tmp_path / "script.txt"
    path.write_text(script)
    return replay(path)


def test_every_element_of_the_notation_is_parsed(tmp_path):
    script = """
subtest wrapped

# Three voters, one of them prepared for later.
add-nodes 3 voters=(1, 2,3) \\
  index=10 prevote=1 \\
  read-only=safe log-level=NONE
----
ok (quiet)

_breakpoint
----
ok

subtest end wrapped

raft-state
----
----
1: StateFollower (Voter) Term:0 Lead:0

2: StateFollower (Voter) Term:0 Lead:0
3: StateFollower (Voter) Term:0 Lead:0
----
----

deliver-msgs drop=(2) 1
----
no messages
"""
    assert difference(tmp_path, script) is None


def test_messages_are_delivered_and_dropped_in_the_order_of_the_line(tmp_path):
    script = """
add-nodes 3 voters=(1,2,3) index=10 log-level=none
----
ok

campaign 1 log-level=none
----
ok

process-ready 1 log-level=none
----
ok

deliver-msgs drop=(3) 2
----
dropped: 1->3 MsgVote Term:1 Log:1/10
1->2 MsgVote Term:1 Log:1/10
INFO 2 became follower at term 1
"""
    assert difference(tmp_path, script) is None


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        ("add-nodes 1 voters=(1) index=2 pre-vote=true", "unknown options pre-vote"),
        ("stabilize 1 drop=2", "unknown options drop"),
        ("read-the-mind 1", "unknown command"),
    ],
)
def test_unknown_commands_and_options_are_named(tmp_path, directive, says):
    assert says in str(difference(tmp_path, f"{directive}\n----\nok\n"))


@pytest.mark.parametrize(
    ("directive", "answer"),
    [
        (
            "propose-conf-change 1 v1=true\nv2 v3",
            "v1 conf change can only have one operation and no transition",
        ),
        (
            "propose-conf-change 1 v1=true transition=explicit\nv2",
            "v1 conf change can only have one operation and no transition",
        ),
        ("compact 1 9", "requested index is unavailable due to compaction"),
        ("propose 1 x", "raft proposal dropped"),
    ],
)
def test_an_operation_that_fails_prints_its_error(tmp_path, directive, answer):
    begin = "add-nodes 1 voters=(1) index=10 log-level=none\n----\nok\n"
    assert difference(tmp_path, f"{begin}\n{directive}\n----\n{answer}\n") is None
