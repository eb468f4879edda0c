"""Free space of a volume, measured at intervals."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from taskraft_service.storage.disk_monitor import CHECK_MS, DiskMonitor


class Volume:
    """A volume with blocks of 10 bytes, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 5000
        self.free_blocks = 7
        self.asked: list[object] = []

    def statvfs(self, path: object) -> SimpleNamespace:
        self.asked.append(path)
        # More space is free for root, and blocks may be counted in larger units.
        return SimpleNamespace(f_bavail=self.free_blocks, f_frsize=10, f_bfree=99, f_bsize=4096)


@pytest.fixture
def volume(monkeypatch) -> Volume:
    made = Volume()
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def test_a_measurement_is_reused_for_a_short_time(volume, tmp_path):
    watch = DiskMonitor(tmp_path, 50, lambda: volume.now_ms)
    assert watch.free_bytes == 70
    volume.free_blocks = 3
    volume.now_ms += CHECK_MS - 1
    assert watch.free_bytes == 70
    volume.now_ms += 1
    assert watch.free_bytes == 30
    volume.free_blocks = 2
    volume.now_ms += CHECK_MS - 1
    assert watch.free_bytes == 30
    assert volume.asked == [tmp_path, tmp_path]


@pytest.mark.parametrize(("free_blocks", "is_low"), [(4, True), (5, False), (6, False)])
def test_disk_space_is_low_below_the_limit(volume, tmp_path, free_blocks, is_low):
    volume.free_blocks = free_blocks
    assert DiskMonitor(tmp_path, 50, lambda: volume.now_ms).is_low is is_low


def test_a_real_volume_has_free_space(tmp_path):
    assert not DiskMonitor(tmp_path, 1, lambda: 0).is_low
