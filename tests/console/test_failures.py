"""The page of failures: causes of buried and of retried tasks, and changes of all of one cause."""

import re

import pytest

from taskraft import Retry
from tests.console.test_console_app import followed


def cause(page, kind):
    """Return the fingerprint of the cause with a class."""
    return re.search(rf'id="cause-(-?\d+)">\s*<h2>[^\n]*{kind}', page)[1]


@pytest.fixture
def retried(client, console):
    """Return a tube with four retried tasks of two causes, and a task that has not failed.

    Another tube has one retried task of one of these causes.
    """
    client.create_tube("retried", retry=Retry(attempts_max=9, backoff="1h"))
    tube = client.tube("retried")
    tube.put_many(["x"] * 4)
    for number in range(4):
        reason = LookupError(f"row {number}") if number % 2 else OSError(f"disk {number}")
        tube.take(wait=0).release(reason=reason)
    tube.put("fresh")
    client.create_tube("other", retry=Retry(attempts_max=9, backoff="1h"))
    client.tube("other").put("x")
    client.tube("other").take(wait=0).release(reason=LookupError("row 7"))
    console.post("/tubes/retried/do/resume-puts", {})  # the change makes the console read again
    yield tube
    client.drop_tube("retried")
    client.drop_tube("other")


@pytest.mark.cluster
def test_retried_tasks_are_grouped_by_cause(console, retried):
    page = console.get("/failures?stage=retrying&tube=retried").text
    assert "4 retried tasks have 2 causes" in page
    assert re.search(r'cause-text">row \d<', page)
    assert re.search(r'cause-text">disk \d<', page)
    assert "failure:* AND (state = DELAYED OR state = READY)" in page
    every = console.get("/failures?stage=retrying").text
    assert re.search(r"/tubes/other\">other</a> 1", every)
    buried = console.get("/failures?tube=retried").text
    assert "Nothing is buried" in buried


@pytest.mark.cluster
def test_all_retried_tasks_of_one_cause_and_tube_run_now(console, client, retried):
    page = console.get("/failures?stage=retrying&tube=retried").text
    path = f"/failures/{cause(page, 'LookupError')}/do"
    assert console.post(f"{path}/kick", {"stage": "retrying"}).status_code == 400
    assert console.post(f"{path}/restart", {}).status_code == 400
    assert retried.stats().tasks.delayed == 4
    chosen = {"stage": "retrying", "tube": "retried"}
    done = followed(console, console.post(f"{path}/restart", chosen))
    assert ">done<" in done
    ready = [task.message.failure.type for task in retried.list("state = DELAYED")]
    assert ready == ["OSError", "OSError"]
    assert retried.stats().tasks.ready == 3
    assert client.tube("other").stats().tasks.delayed == 1


@pytest.mark.cluster
def test_all_retried_tasks_of_one_cause_are_buried(console, retried):
    page = console.get("/failures?stage=retrying&tube=retried").text
    path = f"/failures/{cause(page, 'OSError')}/do/bury"
    followed(console, console.post(path, {"stage": "retrying"}))
    assert retried.stats().tasks.buried == 2
    assert retried.stats().tasks.delayed == 2
