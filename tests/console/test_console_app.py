"""The pages over HTTP: what they show, and what they refuse."""

import html
import json
import re
import shlex
import threading
from datetime import UTC, datetime
from importlib.resources import files
from urllib.parse import unquote

import httpx2
import pytest
from click.testing import CliRunner

from taskraft import catalogue
from taskraft.cli import main
from taskraft_console.pages.page import shell_word
from tests.console.conftest import HOSTILE, running_console
from tests.turns import blocked_until

PAGES = (
    "/",
    "/tubes",
    "/tubes/billing",
    "/tubes/billing?concurrency=9&ttl=2h",
    "/tubes/hostile",
    "/tasks",
    "/tasks?tube=billing&where=state%20%3D%20BURIED",
    "/tasks?tube=hostile",
    "/failures",
    "/failures?stage=retrying",
    "/bulk",
    "/workers",
    "/workflows",
    "/workflows/book-1",
    "/schedules",
    "/schedules/nightly?from=2026-03-28T22:30&to=2026-03-29T22:30",
    "/cluster",
    "/settings",
    "/settings?session_ttr=20s",
    "/audit",
    "/audit?call=CreateTube&name=billing",
    "/rights",
)


def task_page(client, tube="billing", where="state = BURIED"):
    task = next(iter(client.tube(tube).list(where)))
    return f"/tubes/{tube}/tasks/{task.id}", task


@pytest.mark.cluster
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_complete_without_scripts(console, path):
    answer = console.get(path)
    assert answer.status_code == 200
    assert "<h1>" in answer.text
    assert "Undefined" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.cluster
def test_pages_name_only_addresses_of_the_console(console, client):
    for path in (*PAGES, task_page(client)[0], task_page(client, "hostile")[0]):
        text = console.get(path).text
        for found in re.findall(r'(?:href|src|action|data-address|data-stream)="([^"]*)"', text):
            assert found.startswith(("/", "?", "#")), found
        assert "<img" not in text
        assert not re.search(r"\sstyle=|\son[a-z]+=\"(?!ce)", re.sub(r">[^<]*<", "><", text)), path


@pytest.mark.cluster
def test_a_task_page_shows_exact_numbers_and_failures(console, client):
    path, task = task_page(client)
    text = console.get(path).text
    assert "1970670598291982290" in text
    assert "TimeoutError: read timed out after 30 s" in text
    assert f"taskraft kick billing --id {task.id}" in text
    assert f"taskraft task update billing {task.id} --priority 0" in text
    assert f"client.tube(&#39;billing&#39;).kick(ids={task.id})" in text


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/tubes/missing", 404, "TUBE_NOT_FOUND"),
        ("/tubes/billing/tasks/999999", 404, "TASK_NOT_FOUND"),
        ("/tubes/billing/tasks/zero", 404, "is not the id of a task"),
        ("/tubes/%00%1b/tasks/1", 400, "INVALID_FIELD"),
        ("/tasks?tube=billing&where=atempt+%3E+1", 400, "atempt"),
        ("/tasks?tube=billing&where=(((", 400, "mistake"),
        ("/tasks?tube=billing&after=nonsense", 400, "page_token"),
        ("/tasks?tube=missing", 404, "TUBE_NOT_FOUND"),
        ("/tubes?sort=%00&page=-7&q=%00&kind=x&only=y", 200, "No tube matches"),
        ("/nothing", 404, "There is no such page"),
        ("/go?q=%00%22", 404, "Nothing is named"),
    ],
)
def test_a_wrong_address_gets_a_sentence(console, path, status, said):
    answer = console.get(path)
    assert answer.status_code == status
    assert said in answer.text
    assert ('id="pause"' in answer.text) == ('id="age">values' in answer.text) == (status == 200)
    explained = set(re.findall("taskraft explain ([A-Z_]+)", answer.text))
    assert explained <= set(catalogue.CATALOGUE)


@pytest.mark.cluster
def test_a_mistake_in_a_filter_is_marked_at_its_place(console):
    text = console.get("/tasks?tube=billing&where=state+%3D+BURIED+AND+atempt+%3E+1").text
    assert f"state = BURIED AND atempt &gt; 1\n{' ' * 19}▲" in text


@pytest.mark.cluster
def test_hostile_texts_are_shown_as_text(console, client):
    for task in client.tube("hostile").list():
        body = console.get(f"/tubes/hostile/tasks/{task.id}").text.partition("<main")[2]
        assert "7 * 7" in body or "7 * 7" not in task.text()
        for tag in ("<img", "<script>", "' hx-get=", '" data-hx', "\u202e"):
            assert tag not in body, task.text()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("headers", "form"),
    [
        ({"sec-fetch-site": "cross-site"}, {}),
        ({"sec-fetch-site": "same-site"}, {}),
        ({"origin": "http://evil.example"}, {}),
        ({}, {}),
        ({"sec-fetch-site": "same-origin"}, {"csrf": "guessed"}),
        ({"sec-fetch-site": "same-origin"}, {}),
    ],
)
def test_a_change_from_elsewhere_is_refused(console, client, headers, form):
    path, task = task_page(client)
    answer = httpx2.post(f"{console.address}{path}/do/kick", data=form, headers=headers)
    assert answer.status_code == 403
    assert client.tube("billing").peek(task.id).state == "BURIED"


@pytest.mark.cluster
def test_a_get_changes_nothing(console, client):
    path, task = task_page(client)
    assert console.get(f"{path}/do/kick").status_code in (404, 405)
    assert client.tube("billing").peek(task.id).state == "BURIED"


@pytest.mark.cluster
def test_a_name_that_points_to_loopback_is_refused(console):
    answer = console.get("/", headers={"host": "evil.example:80"})
    assert answer.status_code == 403
    assert console.get("/", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.cluster
def test_the_actions_of_a_task_do_what_they_say(console, client):
    client.create_tube("actions-moved")
    tube = client.tube("actions")
    ids = [tube.put(f"task {number}", type="step") for number in range(4)]

    def do(task_id, action, **form):
        return console.post(f"/tubes/actions/tasks/{task_id}/do/{action}", form)

    assert do(ids[0], "bury", reason="by hand").status_code == 303
    assert tube.peek(ids[0]).state == "BURIED"
    assert do(ids[0], "kick").status_code == 303
    assert tube.peek(ids[0]).state == "READY"
    assert do(ids[0], "delay", delay="1h").status_code == 303
    assert tube.peek(ids[0]).state == "DELAYED"
    assert do(ids[0], "restart").status_code == 303
    assert do(ids[0], "priority", priority="-7").status_code == 303
    assert tube.peek(ids[0]).priority == -7
    taken = tube.take(wait=0)
    assert do(taken.id, "release").status_code == 303
    assert tube.peek(taken.id).state == "READY"
    copied = do(ids[1], "copy")
    new_id = int(re.search(r"task%20(\d+)", copied.headers["location"])[1])
    assert tube.peek(new_id).text() == "task 1"
    assert tube.peek(new_id).message.spec.type == "step"
    assert do(ids[1], "move", target="actions-moved").status_code == 303
    assert do(ids[2], "delete").headers["location"].startswith("/tubes/actions?notice=deleted")
    assert client.stats(["actions-moved"]).total.tasks.ready == 1


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("action", "form", "status", "said"),
    [
        ("kick", {}, 409, "WRONG_STATE"),
        ("priority", {"priority": "high"}, 400, "must be an integer"),
        ("priority", {"priority": str(2**70)}, 400, "priority"),
        ("delay", {"delay": "soon"}, 400, "soon"),
        ("move", {}, 400, "Name the tube"),
        ("explode", {}, 400, "no change"),
        ("move", {"target": "\x00"}, 400, "INVALID_FIELD"),
    ],
)
def test_a_refused_action_says_why_and_changes_nothing(console, client, action, form, status, said):
    tube = client.tube("refused")
    task_id = tube.put("stays")
    before = tube.peek(task_id).message
    answer = console.post(f"/tubes/refused/tasks/{task_id}/do/{action}", form)
    assert answer.status_code == status
    assert said in answer.text
    assert tube.peek(task_id).message == before


@pytest.mark.cluster
def test_the_options_of_a_tube_change_only_where_the_form_changes(console, client):
    client.create_tube("options", concurrency=4, ttr="30s")
    before = {"before-concurrency": "4", "before-ttr": "30s", "ttr": "30s"}
    answer = console.post("/tubes/options/do/update", {**before, "concurrency": "9"})
    assert answer.status_code == 303
    changed = client.list_tubes(["options"])[0].options
    assert (changed.concurrency, changed.ttr_ms) == (9, 30_000)
    assert (
        console.post("/tubes/options/do/update", {**before, "concurrency": "4"}).status_code == 400
    )
    page = console.get("/tubes/options?concurrency=12&ttr=30&ttl=%3Cb%3E").text
    assert "&lt;b&gt;" in page
    page = console.get("/tubes/options?concurrency=12&ttr=30").text
    assert "<del>9</del></td><td><ins>12</ins>" in page
    assert page.count("<ins>") == 1
    assert "taskraft tube update options --concurrency 12" in page
    assert (
        "Compare again"
        in console.post("/tubes/options/do/update", {**before, "concurrency": "5"}).text
    )
    assert client.list_tubes(["options"])[0].options.concurrency == 9
    assert console.post("/tubes/options/do/truncate", {"name": "option"}).status_code == 400
    assert console.post("/tubes/options/do/drop", {"name": "options"}).status_code == 303
    assert client.list_tubes(["options"]) == []


@pytest.mark.cluster
def test_the_settings_of_the_cluster_are_compared_and_changed(console, client):
    before = client.cluster_state().settings.upgrade_hold_ms
    page = console.get("/settings?upgrade_hold=72h").text
    assert "<del>1d</del></td><td><ins>72h</ins>" in page
    assert "taskraft cluster settings --upgrade-hold 72h" in page
    assert client.cluster_state().settings.upgrade_hold_ms == before
    form = {"upgrade_hold": "72h", "before-upgrade_hold": "1h"}
    assert "Compare again" in console.post("/settings/do/update", form).text
    assert console.post("/settings/do/update", {"upgrade_hold": "x"}).status_code == 400
    form["before-upgrade_hold"] = "1d"
    assert console.post("/settings/do/update", form).status_code == 303
    blocked_until(lambda: client.cluster_state().settings.upgrade_hold_ms == 72 * 3_600_000)
    client.configure(upgrade_hold="24h")


@pytest.mark.cluster
def test_a_read_only_console_refuses_each_change(three_nodes, client):
    path, task = task_page(client)
    with running_console(three_nodes.target, "--read-only") as console:
        assert "disabled" in console.get(path).text
        assert "Payload, headers and result are hidden" in console.get(path).text
        assert "1970670598291982290" not in console.get(path).text
        assert "1970670598291982290" in console.get(f"{path}?reveal=1").text
        assert console.get(f"{path}/payload").status_code == 403
        assert console.post(f"{path}/do/kick", {}).status_code == 403
    assert client.tube("billing").peek(task.id).state == "BURIED"


@pytest.mark.cluster
def test_a_payload_is_downloaded_and_never_opened(console, client):
    path, task = task_page(client, where="type = binary")
    answer = console.get(f"{path}/payload")
    assert answer.content == task.payload
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "000000  00 ff fe" in console.get(path).text


@pytest.mark.cluster
def test_all_links_work_behind_a_prefix(three_nodes):
    with running_console(three_nodes.target, "--base-path", "/queues/one") as console:
        origin = console.address.removesuffix("/queues/one")
        seen, waiting = set(), ["/queues/one/"]
        while waiting and len(seen) < 60:
            path = waiting.pop()
            seen.add(path)
            answer = httpx2.get(origin + path)
            assert answer.status_code == 200, path
            for found in re.findall(r'(?:href|src)="(/[^"]*)"', answer.text):
                link = found.replace("&amp;", "&")
                assert link.startswith("/queues/one/"), link
                if link not in seen and "hostile" not in link:
                    waiting.append(link)
        assert httpx2.get(f"{origin}/tubes").status_code == 200  # a proxy that strips the prefix


@pytest.mark.cluster
def test_a_live_page_sends_its_content_again(console, client):
    with httpx2.stream("GET", f"{console.address}/live?page=/tubes/live-tube") as stream:
        lines = stream.iter_lines()
        first = next(line for line in lines if "TUBE_NOT_FOUND" in line)
        assert json.loads(first.removeprefix("data:"))["page"] == "/tubes/live-tube"
        client.tube("live-tube").put("new")
        assert any("Next to be taken" in line for line in lines)


def test_the_console_listens_on_loopback_only():
    done = CliRunner().invoke(main, ["console", "--listen", "0.0.0.0:0"])
    assert done.exit_code == 2
    assert "not a loopback address" in done.output


def test_every_template_escapes_its_values():
    for template in (files("taskraft_console") / "templates").iterdir():
        text = template.read_text()
        assert "|safe" not in text, template.name
        assert "autoescape false" not in text, template.name
        assert not re.search(r"<[^>{]*\s(style|on\w+)=", text), template.name


@pytest.mark.cluster
def test_the_cluster_shows_the_disk_of_each_node(console, client):
    nodes = client.node_states()
    assert len(nodes) == 3
    assert all(told.state.disk_free_bytes > 0 and told.node == name for name, told in nodes.items())
    rows = re.findall(r'<tr id="member-\d">.*?</tr>', console.get("/cluster").text, re.DOTALL)
    shown = [re.findall(r'<td class="n">([^<]*)</td>', row) for row in rows]
    assert [len(cells) for cells in shown] == [5, 5, 5]
    assert all(cells[2].endswith("GB") and cells[3] == "none" for cells in shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_one_word_of_a_command(text):
    assert shlex.split(shell_word(text)) == [text]


@pytest.mark.cluster
def test_the_samples_of_a_chart_are_json_and_csv(console):
    found = console.get("/history?tube=billing&window=1h").json()
    assert found["step_ms"] == 10_000
    assert found["series"].keys() >= {"put", "ready", "wait_p95_ms"}
    table = console.get("/history?form=csv")
    assert table.text.startswith("at,put,take,ack,")
    assert table.headers["content-disposition"].startswith("attachment")
    assert console.get("/history?tube=%00").status_code == 400


@pytest.mark.cluster
def test_the_timeline_of_a_task_begins_with_its_put(console, client):
    text = console.get(task_page(client)[0]).text
    steps = re.findall(r"<p><b>([^<]+)</b>", text)
    assert steps[0] == "put"
    assert steps.count("taken") == 2
    assert "Older events are not in the change feed" not in text


@pytest.mark.cluster
def test_the_page_of_rights_shows_the_grants(console):
    text = console.get("/rights").text
    assert "the cluster has no access control" in text
    assert "<td>admin</td>" in text


def followed(console, answer):
    """Return the page of a sweep once the sweep has ended."""
    assert answer.status_code == 303, answer.text
    page = []

    def has_ended():
        page[:] = [console.get(answer.headers["location"]).text]
        return ">running<" not in page[0] and ">waiting<" not in page[0]

    blocked_until(has_ended)
    return page[0]


@pytest.mark.cluster
def test_kick_all_like_this_kicks_only_the_tasks_of_one_cause(console, client):
    tube = client.tube("causes")
    ids = tube.put_many([str(number) for number in range(6)])
    for place, task_id in enumerate(ids):
        tube.bury(task_id, reason=LookupError(f"row {place}") if place % 2 else OSError("disk 7"))
    console.post("/tubes/causes/do/pause-puts", {})  # the change makes the console read again
    text = console.get("/failures?tube=causes").text
    found = re.search(r'id="cause-(-?\d+)">\s*<h2>[^\n]*LookupError', text)
    assert re.search(r"cause-text\">row \d<", text)
    page = followed(console, console.post(f"/failures/{found[1]}/do/kick", {}))
    assert ">done<" in page
    assert [task.id for task in tube.list("state = READY")] == ids[1::2]
    assert console.post("/failures/0123/do/kick", {}).status_code == 400


@pytest.mark.cluster
def test_all_that_match_a_search_are_changed(console, client):
    tube = client.tube("many")
    tube.put_many(["a"] * 450, type="a")
    tube.put("b", type="b")
    form = {"tube": "many", "where": "type = a", "action": "delete"}
    assert console.post("/tasks/do/start?tube=many", form).status_code == 400
    assert tube.stats().tasks.ready == 451
    page = followed(console, console.post("/tasks/do/start?tube=many", {**form, "name": "many"}))
    assert ">450<" in page
    assert tube.stats().tasks.ready == 1
    wrong = {"tube": "many", "where": "((", "action": "kick"}
    assert console.post("/tasks/do/start?tube=many&where=((", wrong).status_code == 400
    assert console.get("/bulk/999").status_code == 404
    assert console.post("/bulk/999/do/stop", {}).status_code == 404
    assert client.bulk_sweeps()[0].changed == 450


@pytest.mark.cluster
def test_the_page_of_a_tube_lists_the_consumers_that_wait(console, client):
    client.create_tube("awaited")
    with client.subscribe("awaited", credit=3, types=["<b>"]) as tasks:
        waiting = threading.Thread(target=next, args=(iter(tasks),))
        waiting.start()
        blocked_until(lambda: "&lt;b&gt;" in console.get("/tubes/awaited").text)
        page = console.get("/tubes/awaited").text
        assert "<td>stream</td>" in page
        client.tube("awaited").put("x", type="<b>")
        waiting.join()


@pytest.mark.cluster
def test_a_consumer_without_credit_is_busy_and_does_not_wait(console, client):
    client.create_tube("served")
    client.tube("served").put("x")
    with client.subscribe("served", credit=1) as tasks:
        next(iter(tasks))
        blocked_until(lambda: "nothing: busy" in console.get("/tubes/served").text)
        assert "No consumer waits" not in console.get("/tubes/served").text


@pytest.mark.cluster
def test_the_page_of_a_tube_shows_who_holds_its_subqueues(console, client):
    client.create_tube("tenants", "utube", subqueue_concurrency=2)
    tenants = client.tube("tenants")
    for name in ("<i>a</i>", "<i>a</i>", "<i>a</i>", 'b"*'):
        tenants.put("x", subqueue=name)
    for _ in range(2):
        tenants.take(wait=0)
    page = console.get("/tubes/tenants").text
    rows = re.findall(r'<tr id="subqueue-.*?</tr>', page)
    assert [re.sub(r"(<[^>]*>)+", " ", row).split()[1:4:2] for row in rows] == [["1", "ms"]] * 2
    held = next(row for row in rows if "&lt;i&gt;" in row)
    assert "2</span> <small>of 2" in held
    assert "skips: at its limit" in held
    [session] = [each for each in client.list_sessions() if each.taken == 2]
    assert f'href="/workers/{session.session_id[:8]}"' in held
    other = next(row for row in rows if row != held)
    assert "gets a task" in other
    link = html.unescape(re.search(r'href="([^"]*)"', other)[1])
    assert console.get(link).text.count('<tr id="task-') == 1
    assert "Sub-queues" not in console.get("/tubes/billing").text


@pytest.mark.cluster
def test_a_tube_is_blocked_by_its_subqueues(console, client):
    client.create_tube("blocked", "utube")
    for _ in range(2):
        client.tube("blocked").put("x", subqueue="a")
    client.tube("blocked").take(wait=0)
    page = console.get("/tubes/blocked").text
    assert "each sub-queue with a ready task is at its limit" in page
    assert "No ready task can be taken now" in page


@pytest.mark.cluster
def test_the_search_offers_the_largest_tubes(console, client):
    client.tube("largest").put_many(["x"] * 999)
    blocked_until(lambda: 'href="/tasks?tube=largest"' in console.get("/tasks").text)
    assert console.get("/tasks?tube=largest").text.count('<tr id="task-') == 50


@pytest.mark.cluster
def test_a_link_of_an_alert_shows_the_time_of_the_alert(console):
    def samples():
        return console.get("/history?tube=billing").json()["at"]

    blocked_until(lambda: len(samples()) >= 3)
    whole = samples()
    last = datetime.fromtimestamp(whole[-2], UTC).isoformat().replace("+00:00", "Z")
    page = console.get(f"/tubes/billing?from=-55m&to={last}")
    assert page.status_code == 200
    chart = html.unescape(re.search(r'data-url="([^"]+)"', page.text)[1])
    assert last in unquote(chart)
    answer = console.get(chart).json()
    assert answer["at"] == whole[:-1]
    assert len(answer["series"]["ready"]) == len(whole) - 1
    for path in ("/", "/tubes/billing"):
        refused = console.get(f"{path}?from=tomorrow")
        assert refused.status_code == 400
        assert "is no time such as" in html.unescape(refused.text)
    assert console.get("/history?tube=billing&from=tomorrow").status_code == 400
