"""Opening a node's state, and its monotonic clock."""

import time

import pytest

from taskraft_service.clock.cluster_clock import monotonic_ms
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.process.startup import open_machine
from taskraft_service.queue.store.keys import META
from taskraft_service.storage.directory import STATE_DIRECTORY, StateForeign
from tests.file_digests import file_digests
from tests.service.conftest import config_in
from tests.service.machine.test_state_machine import story


@pytest.fixture
def opened(tmp_path):
    """Open the state of a node, with some entries; return how to open it again."""
    config = config_in(tmp_path)
    config.data_dir.mkdir()

    def opening():
        return open_machine(config, MemberIdentity(config.member, ()))

    machine = opening()
    machine.apply(story())
    machine.collect()
    return config.data_dir / STATE_DIRECTORY, machine, opening


@pytest.mark.shows_fault(
    "directory",
    "a release is started that does not read the format of the state, or its cluster version",
    "refuses to start, status 1, and changes no file",
)
@pytest.mark.parametrize(
    ("head", "refusal"),
    [
        (bytes((19, 0, 2)), "run a release that speaks cluster version 2$"),
        (bytes((18, 0, 2)), "run a release that speaks cluster version 2$"),
        (bytes((19, 0, 1)), "the store has format 19, this release reads 18$"),
        (bytes((17, 0, 1)), "the store has format 17, this release reads 18$"),
    ],
)
def test_a_release_that_does_not_read_the_state_changes_no_file(opened, head, refusal):
    state, machine, opening = opened
    meta = machine._state.store.get(META)
    machine._state.store.write([(META, head + meta[3:])])
    machine._state.store.flush()
    machine.abandon()
    for leftover in ("outgoing/00000001", "00000009"):
        (state / leftover).mkdir(parents=True)
        (state / leftover / "000001.sst").write_bytes(b"of a crash")
    before = file_digests(state)
    with pytest.raises(StateForeign, match=refusal):
        opening()
    assert file_digests(state) == before


def test_a_state_of_this_release_is_opened_again(opened):
    state, machine, opening = opened
    machine.close()
    (state / "00000009").mkdir()
    again = opening()
    assert again.applied_index == machine.applied_index
    assert not (state / "00000009").exists()
    again.close()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux tells")
def test_the_monotonic_clock_includes_time_asleep(monkeypatch):
    slept_ms = 3_600_000
    clocks = {time.CLOCK_MONOTONIC: 5, time.CLOCK_BOOTTIME: 5 + slept_ms}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: clocks[clock] * 1_000_000)
    assert monotonic_ms() == 5 + slept_ms
