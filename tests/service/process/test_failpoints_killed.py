"""Kill real processes, with the real queue on real files, at every named failpoint.

A kill leaves the page cache; RocksDB runs without its own log, so what it had not flushed is gone
all the same. Power losses are in tests/replication/storage/test_failpoints_crossed.py, on a
simulated disk.
"""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from replication.storage.failpoints import NAMES

NOT_IN_THE_STORY = frozenset(name for name in NAMES if name.startswith("removed."))
"""Has a test beside the others on the simulated disk."""


class Zygote:
    """A process that lets others live and die."""

    def __init__(self, place):
        self.place = place
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.crash_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.digest = self.ask("prepare", "reference")["result"]
        self.crossings = self.ask("live", "unharmed", rules="")["result"]

    def ask(self, work, name, **fields):
        request = {"work": work, "place": str(self.place / name), **fields}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(20) == 0
        self._process.stdout.close()


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    one = Zygote(tmp_path_factory.mktemp("killed"))
    yield one
    one.close()


def test_a_life_without_failures_ends_in_the_expected_state(zygote):
    assert zygote.ask("restart", "unharmed") == {"result": zygote.digest}


def test_the_story_crosses_every_failpoint(zygote):
    assert set(zygote.crossings) == NAMES - NOT_IN_THE_STORY


@pytest.mark.parametrize("name", sorted(NAMES - NOT_IN_THE_STORY))
def test_nothing_is_lost_by_a_kill_at(zygote, name):
    crossing = (zygote.crossings[name] + 1) // 2
    died = zygote.ask("live", name, rules=f"{name}=kill@{crossing}")
    assert died == {"signal": signal.SIGKILL}
    assert zygote.ask("restart", name) == {"result": zygote.digest}
    shutil.rmtree(zygote.place / name)
