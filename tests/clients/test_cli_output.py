"""The output formats of the command line."""

import json
import signal
import subprocess
import sys

import pytest
import yaml

from taskraft.cli import output
from tests.clients.test_cli import started
from tests.turns import blocked_until


@pytest.fixture
def tube(emails):
    emails.put_many(["a", "b"])


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("peek emails 1 2", "emails/1\nemails/2\n"),
        ("tube list", "emails\n"),
        ("stats", "emails\n"),
        ("kick emails", ""),
    ],
)
def test_names_are_printed_one_a_line(run, tube, line, names):
    assert run(f"{line} -o name").stdout == names


def test_yaml_and_json_have_the_same_content(run, tube):
    assert yaml.safe_load(run("peek emails 1 2 -o yaml").stdout) == json.loads(
        run("peek emails 1 2 -o json").stdout
    )


def test_a_template_names_fields_with_paths(run, tube):
    done = run(
        r"peek emails 1 2 -o 'template={tube}/{id}\t{spec.content_type} {spec.ttl_ms}{attempt}'"
    )
    assert done.stdout == "".join(f"emails/{n}\ttext/plain; charset=utf-8 0\n" for n in (1, 2))


def test_a_template_with_an_unknown_field_is_a_usage_error(run, tube):
    done = run("peek emails 1 -o 'template={id} {typo.x}'")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "{typo.x}" in done.stderr


def test_an_unknown_format_is_a_usage_error(run, tube):
    done = run("peek emails 1 -o xml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "jsonl" in done.stderr


def test_an_error_reason_is_printed_in_every_format(run):
    assert run("explain LEASE_STALE -o name").stdout == "LEASE_STALE\n"
    assert yaml.safe_load(run("explain LEASE_STALE -o yaml").stdout)[0]["reason"] == "LEASE_STALE"
    assert "FAILED_PRECONDITION" in run("explain LEASE_STALE -o 'template={code}'").stdout


def test_raw_payloads_are_printed_unchanged(run, emails):
    emails.put_many([b"\xff\x00", b"b"])
    assert run("peek emails 1 2 --raw").stdout_bytes == b"\xff\x00\nb\n"
    assert run("task show emails 2 --raw").stdout == "b\n"
    assert run("task list emails --raw").stdout_bytes == b"\xff\x00\nb\n"


def test_wide_tables_have_more_columns(run, tube):
    assert "SUBQUEUE" in run("peek emails 1 -o wide").stdout
    assert "DEAD LETTERS" in run("tube list -o wide").stdout


@pytest.mark.real_time
def test_watch_repeats_until_ctrl_c(cluster):
    line = "stats --watch --interval 10ms"
    with started(cluster, line, stdout=subprocess.PIPE) as watching:
        blocked_until(lambda: len(cluster.requests("GetStatistics")) >= 3)
        watching.send_signal(signal.SIGINT)
        stdout, stderr = watching.communicate(timeout=30)
    assert (watching.returncode, stderr) == (130, "\n")
    assert stdout.count("TUBE") >= 2


def test_ctrl_c_during_a_finalizer_ends_a_watch_without_output(calls, run, monkeypatch):
    class Interrupting:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    show = output.write_table

    def interrupted(*table):
        show(*table)
        Interrupting()

    monkeypatch.setattr(output, "write_table", interrupted)
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    done = run("stats --watch --interval 1h")
    assert (done.exit_code, done.stderr, dropped) == (130, "\n", [])
    assert len(calls.requests("GetStatistics")) == 1


def test_watch_without_an_interval_is_a_usage_error(calls, run):
    assert run("stats --watch --interval 0s").exit_code == 2
    assert not calls.requests("GetStatistics")


def test_a_table_shows_control_characters_escaped(run, emails):
    emails.put("a")
    emails.take(wait=0).release(0, reason=ValueError("\x1b[2J gone\nnext"))
    done = run("task history emails/1", color=True)
    assert r"ValueError: \u001b[2J gone\u000anext" in done.stdout
    assert "\x1b" not in done.stdout
