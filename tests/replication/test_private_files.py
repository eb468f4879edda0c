"""A file with a secret is accepted or refused by its mode, its owner and its group."""

import os

import pytest

from taskraft_replication.tls.private_files import exposure_of


@pytest.mark.parametrize(
    ("mode", "is_own", "is_in_group", "who"),
    [
        (0o600, True, True, ""),
        (0o400, True, True, ""),
        (0o640, True, True, "its group"),
        (0o604, True, True, "other users"),
        (0o644, False, True, "other users"),
        (0o440, False, True, ""),
        (0o640, False, True, ""),
        (0o660, False, True, "its group"),
        (0o440, False, False, "its group"),
        (0o400, False, False, ""),
    ],
)
def test_only_the_owner_or_the_group_of_a_mounted_secret_has_access(
    tmp_path, monkeypatch, mode, is_own, is_in_group, who
):
    path = tmp_path / "server.key"
    path.touch()
    path.chmod(mode)
    found = path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: found.st_uid + (not is_own))
    monkeypatch.setattr(os, "getegid", lambda: found.st_gid + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [found.st_gid] if is_in_group else [])
    exposure = exposure_of(path)
    assert bool(exposure) == bool(who)
    if who:
        advice = f"chmod {600 if is_own else 440} {path}"
        assert exposure == (f"{path}: {who} can access the file (mode {mode:04o}); run: {advice}")
