"""`make console`: a development cluster with its console, and a busy day of work."""

import signal
import subprocess
import sys

import httpx2
import pytest

from demo.busy_day import FAILURES
from taskraft import Client
from tests.dev_ports import dev_port
from tests.turns import blocked_until

pytestmark = pytest.mark.cluster
STATES = ("ready", "delayed", "taken", "buried", "held")


def test_a_busy_day_has_all_kinds_of_work_and_a_console():
    port = dev_port(3)
    command = [sys.executable, "-m", "demo.busy_day", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as day:
        try:
            said = {}
            for line in day.stdout:
                key, _, value = line.strip().partition(": ")
                said[key] = value
                if key == "busy day":
                    break
            blocked_until(lambda: "/tubes/imports" in httpx2.get(said["console"]).text)
            with Client(f"127.0.0.1:{port}") as client:
                assert client.total().total.tasks.total > 5_000
                assert client.list_tubes(["imports"])[0].options.take_paused
                assert len(list(client.groups.list())) >= 2
                assert any(each.cron for each in client.schedules.list())
                blocked_until(lambda: all(getattr(client.total().total.tasks, s) for s in STATES))
                blocked_until(lambda: failures_of(client) == {name for name, _ in FAILURES})
        finally:
            day.send_signal(signal.SIGINT)
            day.stdout.read()
    assert day.returncode == 0


def failures_of(client):
    failed = client.tube("webhooks").list("failure:*")
    return {task.message.failure.type for task in failed}
