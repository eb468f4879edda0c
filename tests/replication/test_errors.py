"""The reason that is reported when an unexpected error stops a node."""

import errno

import pytest

from taskraft_replication.errors import (
    LogDamaged,
    MemberRemoved,
    NodeBroken,
    StorageFailed,
    reason_of,
)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file", "/data/raft-0/log/1.log"),
            LogDamaged,
            "/data/raft-0/log/1.log is missing",
        ),
        (OSError(errno.EIO, "broken"), StorageFailed, "the storage failed: [Errno 5] broken"),
        (KeyError("x"), NodeBroken, "KeyError: 'x'"),
    ],
)
def test_an_unexpected_error_gets_a_reason_and_stays_its_cause(error, kind, text):
    reason = reason_of(error)
    assert (type(reason), str(reason), reason.__cause__) == (kind, text, error)


def test_a_known_error_is_its_own_reason():
    error = MemberRemoved("removed")
    assert reason_of(error) is error
