"""The page Audit: the changes of the console, and their details."""

import html
import re

import pytest

from tests.turns import blocked_until


@pytest.mark.cluster
def test_the_audit_shows_changes_of_the_console(console, client):
    client.create_tube("audited")
    client.tube("audited").put("x")
    path = f"/tubes/audited/tasks/{next(iter(client.tube('audited').list())).id}"
    assert console.post(f"{path}/do/bury", {"reason": "by hand"}).status_code == 303
    bury, create = client.audit(name="audited")
    assert (bury.call, bury.tasks, create.call) == ("BuryTasks", 1, "CreateTube")
    blocked_until(lambda: "BuryTasks" in console.get("/audit?name=audited").text)
    text = console.get("/audit?name=audited&call=BuryTasks").text
    assert "CreateTube" not in re.sub(r"<input[^>]*>", "", text)
    assert "taskraft cluster audit --call BuryTasks --name audited" in text


@pytest.mark.cluster
def test_the_audit_shows_details_with_units_and_exactly_on_hover(console, client):
    client.create_tube("detailed", ttr="90s")
    blocked_until(lambda: "CreateTube" in console.get("/audit?name=detailed").text)
    cell = re.search(r'<td class="long" title="([^"]*)">(.*?)</td>', console.get("/audit").text)
    assert html.unescape(cell[1]) == client.audit(name="detailed")[0].detail
    assert "ttr_ms: 90000" in cell[1]
    text = re.sub("<[^>]+>", "", cell[2])
    assert "ttr 90s" in text
    assert "detailed" not in text
