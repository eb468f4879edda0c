"""Kill real processes, with the real queue on real files, at every failpoint.

A kill leaves the page cache intact; RocksDB runs without a log of its own, so unflushed data is
lost anyway. Tests of power losses are in tests/replication/storage/test_failpoints_crossed.py, on a
simulated disk.
"""

import shutil
import signal

import pytest

from tests.failpoints.failpoints import NAMES
from tests.service.zygote import Zygote

pytestmark = pytest.mark.real_time

NOT_IN_THE_STORY = frozenset(name for name in NAMES if name.startswith(("removed.", "restoring.")))
"""Failpoints with their own tests: on the simulated disk, and of restores."""


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    one = Zygote(tmp_path_factory.mktemp("killed"))
    yield one
    one.close()


def test_a_story_without_failures_ends_in_the_expected_state(zygote):
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
