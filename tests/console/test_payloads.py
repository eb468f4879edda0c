"""Payloads on the page of a task: rules of redaction, large payloads, and the link to the trace."""

import pytest
from click.testing import CliRunner

from taskraft import Client
from taskraft.cli import main
from tests.console.conftest import running_console
from tools.local_cluster import LocalCluster

RULES = """
[[redact]]
tubes = ["secret*"]
paths = ["**.password"]
headers = ["authorization"]
"""
LARGE = 16 * 1024 * 1024
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"authorization": "s3cret", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


@pytest.fixture(scope="module")
def redacting(three_nodes, tmp_path_factory):
    """Run a console with rules of redaction and links to traces."""
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(RULES)
    options = ["--payloads", "full", "--redact", str(rules)]
    options += ["--trace-url", "https://traces.example/trace/{trace_id}"]
    with running_console(three_nodes.target, *options) as one:
        yield one


@pytest.mark.cluster
def test_values_that_a_rule_names_are_on_no_page(redacting, client):
    tube = client.tube(
        "secrets",
    )
    task_id = tube.put({"user": "anna", "password": "s3cret"}, headers=HEADERS)
    for query in ("", "?form=text", "?form=hex", "?reveal=1"):
        page = redacting.get(f"/tubes/secrets/tasks/{task_id}{query}").text
        assert "anna" in page
        assert "s3cret" not in page
        assert page.count("left out by a rule") == 2
    answer = redacting.get(f"/tubes/secrets/tasks/{task_id}/payload?reveal=1")
    assert answer.status_code == 403
    assert "s3cret" not in answer.text
    open_id = client.tube("open").put({"password": "known"})
    assert "known" in redacting.get(f"/tubes/open/tasks/{open_id}").text


@pytest.mark.cluster
def test_a_result_is_redacted_too(redacting, client):
    client.create_tube("secrets.kept", on_ack="keep")
    tube = client.tube("secrets.kept")
    task_id = tube.put({"user": "anna"})
    tube.take(wait=0).ack(result={"rows": 3, "password": "s3cret"})
    page = redacting.get(f"/tubes/secrets.kept/tasks/{task_id}").text
    assert "rows" in page
    assert "s3cret" not in page


@pytest.mark.cluster
def test_a_task_links_to_its_trace(redacting, console, client):
    task_id = client.tube("traced").put("x", headers=HEADERS)
    path = f"/tubes/traced/tasks/{task_id}"
    assert f'href="https://traces.example/trace/{TRACE}"' in redacting.get(path).text
    assert TRACE in console.get(path).text
    assert "traces.example" not in console.get(path).text
    client.tube("traced").put("y", headers={"traceparent": 'javascript:"'})
    odd = client.tube("traced").put("y", headers={"traceparent": f"00-{'0' * 32}-{'0' * 16}-00"})
    assert "traces.example" not in redacting.get(f"/tubes/traced/tasks/{odd}").text


@pytest.mark.cluster
def test_a_payload_of_16_mib_is_cut_on_the_page_and_whole_in_the_download(tmp_path):
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true", "TASKRAFT_PAYLOAD_BYTES_MAX": str(LARGE)}
    payload = b"ab" * (LARGE // 2)
    with (
        LocalCluster(1, tmp_path / "large", settings) as cluster,
        running_console(cluster.target, "--payloads", "full", "--timeout", "60s") as console,
    ):
        cluster.wait_ready()
        with Client(cluster.target, timeout="60s") as client:
            task_id = client.tube("large").put(payload, content_type="text/plain")
        path = f"/tubes/large/tasks/{task_id}"
        page = console.get(path, timeout=120)
        assert page.status_code == 200
        assert f"the first 65536 of {LARGE} bytes" in page.text
        assert len(page.text) < 200_000
        assert console.get(f"{path}/payload", timeout=120).content == payload
        copied = console.post(f"{path}/do/copy", {}, timeout=120)
        assert copied.status_code == 303, copied.text


@pytest.mark.parametrize(
    "url", ["traces.example/{trace_id}", "https://traces.example/", "javascript:{trace_id}"]
)
def test_an_unusable_address_of_traces_is_refused(url):
    done = CliRunner().invoke(main, ["console", "--trace-url", url])
    assert done.exit_code == 2
    assert "{trace_id}" in done.output


def test_an_unusable_file_of_rules_is_refused(tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text("[[redact]]\n")
    done = CliRunner().invoke(main, ["console", "--redact", str(rules)])
    assert done.exit_code == 2
    assert "redact.0.tubes" in done.output
