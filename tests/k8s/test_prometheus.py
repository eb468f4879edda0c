"""A real Prometheus scrapes three nodes, loads the alerts and answers the dashboards' queries."""

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from http.client import HTTPException

import pytest
import yaml

from taskraft import Client
from tests.k8s.test_alerts import ALERTS, RULES, expressions
from tests.turns import blocked_until
from tools.free_addresses import free_addresses
from tools.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(
        not os.environ.get("TASKRAFT_TEST_PROMETHEUS"), reason="`make real-prometheus` runs this"
    ),
]
SCRAPE = "200ms"


class Prometheus:
    """The HTTP interface of a running Prometheus."""

    def __init__(self, address):
        self.address = address

    def get(self, path, **fields):
        """Return the data of an answer; None: there is no answer yet."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]
        except (OSError, HTTPException):
            return None

    def values(self, query):
        """Return the values of an instant query, which must be valid."""
        found = self.get("query", query=query)
        return [float(one["value"][1]) for one in found["result"]] if found else []


@contextmanager
def prometheus(folder, nodes):
    """Run a Prometheus that scrapes the nodes as the ServiceMonitor does, but more often."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": RULES}))
    targets = [
        {"targets": [node.http_address], "labels": {"namespace": "q", "pod": node.name}}
        for node in nodes
    ]
    scrape = {"job_name": "taskraft-http", "static_configs": targets}
    (folder / "prometheus.yaml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
                "rule_files": ["rules.yaml"],
                "scrape_configs": [scrape],
            }
        )
    )
    (address,) = free_addresses(1)
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait()


def without_variables(expression):
    """Return an expression of a dashboard as Grafana sends it."""
    return (
        expression.replace("$__rate_interval", "1m")
        .replace("$namespace", ".*")
        .replace("$tube", ".*")
        .replace("$pod", ".*")
    )


def test_a_real_prometheus_scrapes_all_nodes_and_answers_all_queries(tmp_path):
    with (
        LocalCluster(3, tmp_path / "cluster") as cluster,
        prometheus(tmp_path, cluster.nodes) as server,
    ):
        with Client(cluster.target) as client:
            client.create_tube("mail")
            tube = client.tube("mail")

            def runs_are_counted():
                # Events before the first sample of a node are not counted.
                tube.put(b"x")
                with tube.take():
                    pass
                return server.values("max(taskraft_task_run_seconds_count) > bool 0") == [1.0]

            blocked_until(runs_are_counted)
        blocked_until(lambda: server.values('up{job="taskraft-http"}') == [1.0] * 3)
        blocked_until(lambda: server.values("sum(taskraft_is_leader)") == [1.0])
        assert server.values('sum(taskraft_call_seconds_count{method="PutTasks"}) > bool 0') == [1]
        for where, expression in expressions():
            if "label_values" not in expression:
                answer = server.get("query", query=without_variables(expression))
                assert answer is not None, (where, expression)
        loaded = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in loaded} == {rule["alert"] for rule in ALERTS}
        blocked_until(lambda: all(rule_is_evaluated(server)))


def rule_is_evaluated(server):
    """Yield whether each alert was evaluated without an error."""
    for group in server.get("rules")["groups"]:
        for rule in group["rules"]:
            assert not rule.get("lastError"), rule
            yield rule["health"] == "ok"
