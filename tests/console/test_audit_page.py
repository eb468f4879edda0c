"""The acts of management on the page Audit and on charts."""

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


@pytest.mark.cluster
def test_a_chart_marks_the_acts_of_management_on_its_tube(console, client):
    client.create_tube("marked")
    client.create_tube("unmarked")
    client.update_tube("marked", take_paused=True)

    def acts():
        return console.get("/history?tube=marked").json()["acts"]

    blocked_until(lambda: len(acts()) == 2)
    assert [act["text"] for act in acts()] == ["UpdateTube marked", "CreateTube marked"]
    at = [act["at"] for act in acts()]
    assert at == sorted(at, reverse=True)
