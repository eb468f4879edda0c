"""The pages while nodes do not answer."""

import re

import pytest

from taskraft import Client
from tests.console.conftest import running_console
from tests.turns import blocked_until
from tools.local_cluster import LocalCluster


@pytest.mark.cluster
def test_a_cluster_without_leader_leaves_the_last_values_on_the_page(tmp_path):
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
    with LocalCluster(1, tmp_path / "one", settings) as cluster:
        cluster.wait_ready()
        with Client(cluster.target) as client:
            task_id = client.tube("last").put("value")
        with running_console(cluster.target, "--timeout", "1s") as console:
            blocked_until(lambda: "/tubes/last" in console.get("/").text)
            assert console.get("/readyz").status_code == 200
            cluster.nodes[0].kill()
            blocked_until(lambda: "No node answers" in console.get("/", timeout=30).text)
            page = console.get("/", timeout=30)
            assert page.status_code == 200
            assert "/tubes/last" in page.text
            answer = console.get(f"/tubes/last/tasks/{task_id}", timeout=30)
            assert answer.status_code in (503, 504)
            blocked_until(lambda: console.get("/readyz", timeout=30).status_code == 503)
            assert console.get("/livez").status_code == 200


@pytest.mark.cluster
def test_without_a_majority_a_red_band_says_who_answers_and_no_change_succeeds(tmp_path):
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
    with LocalCluster(3, tmp_path / "three", settings) as cluster:
        cluster.wait_ready()
        with Client(cluster.target) as client:
            task_id = client.tube("last").put("value")
        with running_console(cluster.target, "--timeout", "2s") as console:
            path = f"/tubes/last/tasks/{task_id}"
            assert 'class="band' not in console.get(path).text
            form = {"csrf": re.search(r'name="csrf" value="([^"]+)"', console.get(path).text)[1]}
            left, *killed = cluster.nodes
            for node in killed:
                node.kill()
            blocked_until(lambda: "no majority" in console.get("/", timeout=30).text)
            page = console.get("/", timeout=30)
            assert page.status_code == 200
            assert re.search(r'class="band red".*only ' + left.name + " of 3 voters", page.text)
            assert re.search(r"The values are [^<]+ old", page.text)
            assert "/tubes/last" in page.text
            said = f'class="band red".*only {left.name} of 3 voters'
            blocked_until(lambda: re.search(said, console.get("/cluster", timeout=30).text))
            answer = console.post(f"{path}/do/bury", form, is_own=False, timeout=30)
            assert answer.status_code in (503, 504)
            assert 'aria-label="Done"' not in answer.text
            assert "band red" in answer.text
