"""Test the alerts with promtool, and the names in alerts and dashboards against a live node."""

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from taskraft import Client
from taskraft_service.queue.entities.life_cycle import EventKind
from tools import metrics_reference
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "k8s/components/monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
ALERTS = [rule for group in RULES for rule in group["rules"] if "alert" in rule]
RECORDED = [rule for group in RULES for rule in group["rules"] if "record" in rule]
CASES = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text()
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
PAGES = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if "`taskraft_" in page.read_text()
    and page.stem not in {"workers", "testing", "pipeline", "cli"}
)
"""Pages that name metrics of nodes; the others name those of workers, checks, tests and views."""
METRIC = re.compile(r"\b(?:taskraft|process)_[a-z_]+")
ABSENT_UNTIL_NEEDED = {
    "taskraft_certificate_expires_timestamp_seconds",  # only with certificates
    "taskraft_edge_calls",  # only with the native edge
    "taskraft_edge_connections",
    "taskraft_edge_limited_total",
    "taskraft_edge_unfinished_bytes",
    "taskraft_edge_unfinished_small_bytes",
    "taskraft_edge_unfinished_unknown_bytes",
    "taskraft_feed_consumer_lag_events",  # only with a named consumer of the feed
    "taskraft_feed_consumer_lost_events",
    "taskraft_scrub_age_seconds",  # only after a complete pass
    "taskraft_snapshot_age_seconds",  # only after a snapshot
    "taskraft_wall_clock_deviation_seconds",  # only while a majority agrees
}


def promtool(folder, *arguments, **options):
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def write_rules(path, alerts):
    """Write the recorded series and some alerts, without their texts."""
    rules = [*RECORDED, *({**rule, "annotations": {}} for rule in alerts)]
    path.write_text(yaml.safe_dump({"groups": [{"name": "taskraft", "rules": rules}]}))


def failures(folder, *files):
    """Run files with test cases of promtool; return its output if a case fails."""
    tested = promtool(folder, "test", "rules", *files)
    return tested.stdout + tested.stderr if tested.returncode else ""


def test_the_alerts_and_their_texts_are_valid(tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": RULES}))
    checked = promtool(tmp_path, "check", "rules", "rules.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alerts_fire_when_they_must_and_only_then(tmp_path):
    for rule in ALERTS:
        assert rule["annotations"]["description"].endswith(".")
    write_rules(tmp_path / "rules.yaml", ALERTS)
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(CASES))
    assert failures(tmp_path, "alerts.yaml") == ""


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
def test_each_alert_has_a_runbook_and_a_case_in_which_it_fires(alert):
    (rule,) = [rule for rule in ALERTS if rule["alert"] == alert]
    assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{alert.lower()}"
    assert f"\n## {alert}\n" in RUNBOOKS
    fired = [
        case
        for test in CASES["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == alert and case.get("exp_alerts")
    ]
    assert fired


def expressions():
    """Yield the name and the text of each expression of the alerts and dashboards."""
    for rule in (*RECORDED, *ALERTS):
        yield rule.get("alert", rule.get("record")), rule["expr"]
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            yield f"{path.stem}: {variable['name']}", variable["query"]


@pytest.fixture(scope="module")
def live_page(tmp_path_factory):
    """Return the metrics of a leader that has served a task."""
    with LocalCluster(3, tmp_path_factory.mktemp("alerts")) as cluster:
        with Client(cluster.target) as client:
            client.create_tube("mail")
            tube = client.tube("mail")
            tube.put(b"x")
            with tube.take():
                pass
        leader = cluster.leader()
        with urllib.request.urlopen(f"http://{leader.http_address}/metrics") as answer:
            return answer.read().decode()


@pytest.fixture(scope="module")
def live_names(live_page):
    """Return the names of the samples of a live page."""
    return {
        line.partition("{")[0].partition(" ")[0]
        for line in live_page.splitlines()
        if line[0] != "#"
    }


def test_the_names_of_the_metrics_follow_the_conventions_of_prometheus(live_page, tmp_path):
    """promtool checks units, suffixes and help texts."""
    checked = promtool(tmp_path, "check", "metrics", input=live_page)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    bases = re.findall(r"^# TYPE (\w+) ", live_page, re.MULTILINE)
    assert all(name.startswith(("taskraft_", "process_")) for name in bases)


def test_the_generated_reference_has_exactly_the_metrics_of_a_live_page(live_page):
    live = set(re.findall(r"^# TYPE (taskraft_\w+?)(?<!_created) ", live_page, re.MULTILINE))
    listed = {
        metric.row().split("`")[1] for metric in metrics_reference.metrics(metrics_reference.NODE)
    }
    assert listed - ABSENT_UNTIL_NEEDED == live - ABSENT_UNTIL_NEEDED


def test_each_metric_of_alerts_and_dashboards_is_in_a_live_page(live_names):
    unknown = {
        (where, name)
        for where, text in expressions()
        for name in METRIC.findall(text)
        if name not in live_names | ABSENT_UNTIL_NEEDED
    }
    assert not unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_metric_of_a_page_is_in_a_live_page(page, live_names):
    named = re.findall(r"`(?:taskraft|process)_[a-z_]+\b(?!\.)", page.read_text())
    known = live_names | ABSENT_UNTIL_NEEDED
    unknown = {name[1:] for name in named} - known
    assert {name for name in unknown if f"{name}_bucket" not in known} == set()


def test_each_operation_in_alerts_and_dashboards_exists():
    known = {kind.name.lower() for kind in EventKind}
    for where, text in expressions():
        for choice in re.findall(r'operation=~?"([^"]+)"', text):
            assert set(choice.split("|")) <= known, where


def test_each_panel_tells_its_meaning():
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        for panel in panels:
            assert panel["type"] == "row" or panel["description"].endswith((".", "`.")), panel
