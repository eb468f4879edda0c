"""The pages of sessions: the leases that a session holds, and how long they last."""

import socket

import pytest

from taskraft import Client, Task
from taskraft.v1.task_pb2 import Task as TaskMessage
from taskraft_console.pages.session import lease_line


@pytest.mark.parametrize(
    ("until_ms", "ttr_ms", "left_ms", "percent", "is_short"),
    [
        (0, 0, None, 100, False),
        (61_000, 60_000, 60_000, 100, False),
        (21_000, 60_000, 20_000, 33, False),
        (20_999, 60_000, 19_999, 33, True),
        (900, 60_000, 0, 0, True),
        (90_000, 60_000, 89_000, 100, False),
    ],
)
def test_a_lease_is_short_below_a_third_of_its_time_to_run(
    until_ms, ttr_ms, left_ms, percent, is_short
):
    task = Task(TaskMessage(lease_until_ms=until_ms, ttr_ms=ttr_ms))
    line = lease_line(task, 1_000)
    assert (line.left_ms, line.percent, line.is_short) == (left_ms, percent, is_short)


@pytest.mark.cluster
def test_the_page_of_a_session_lists_its_leases(console, three_nodes, client):
    client.create_tube("leased", ttr="1h")
    client.tube("leased").put_many(["a", "b"], type="<i>odd</i>")
    labels = {"role": "<i>mail</i>"}
    with Client(three_nodes.target, name="worker <b>7</b>", labels=labels) as holder:
        first, _ = (holder.tube("leased").take(wait=0) for _ in range(2))
        client.tube("leased").cancel(first.id)
        [found] = [each for each in client.list_sessions() if each.name == "worker <b>7</b>"]
        short_id = found.session_id[:8]
        page = console.get(f"/workers/{short_id}").text
        assert "worker &lt;b&gt;7&lt;/b&gt;" in page
        assert page.count('id="lease-leased-') == 2
        assert f'href="/tubes/leased/tasks/{first.id}"' in page
        assert page.count('<span class="tag amber">yes</span>') == 1
        assert "<dt>role</dt><dd>&lt;i&gt;mail&lt;/i&gt;</dd>" in page
        assert "No call or stream of the session is open." in page
        workers = console.get("/workers?q=MAIL").text
        assert f'href="/workers/{short_id}"' in workers
        assert f'<td class="text">{socket.gethostname()}</td>' in workers
        assert f'href="/workers/{short_id}"' in console.get("/tubes/leased").text
        assert console.get(f"/go?q={short_id}").headers["location"] == f"/workers/{short_id}"
    missing = console.get("/workers/00000000")
    assert missing.status_code == 404
    assert "SESSION_NOT_FOUND" in missing.text


@pytest.mark.cluster
def test_the_page_of_a_session_tells_what_its_streams_wait_for(console, three_nodes, client):
    client.create_tube("streamed")
    with Client(three_nodes.target) as holder, holder.subscribe("streamed", credit=7) as tasks:
        client.tube("streamed").put("a")
        task = next(iter(tasks))
        page = console.get(f"/workers/{tasks.session_id[:8]}").text
        assert '<td class="text">streamed</td>' in page
        assert "<td>stream</td>" in page
        assert 'id="lease-streamed-' in page
        task.ack()
