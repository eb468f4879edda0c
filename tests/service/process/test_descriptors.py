"""The descriptors of a process suffice for everything that its ports and files may use."""

import asyncio
import errno
import resource

import pytest
from structlog.testing import capture_logs

from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.process import descriptors
from taskraft_service.process.descriptors import (
    DESCRIPTORS_MAX,
    DESCRIPTORS_MIN,
    current_shares,
    raise_limit,
    share,
)
from taskraft_service.process.main import stop_on_defect
from taskraft_service.process.probes import CONNECTIONS_MAX
from taskraft_service.storage.rocks import TABLES_OPEN_MAX

IDLE = 64
"""Upper bound of the descriptors of an idle node in a cluster; see ``/proc/PID/fd``."""


class Limits:
    """The limits of a process."""

    def __init__(self, soft, hard):
        self.now = (soft, hard)

    def getrlimit(self, _kind):
        return self.now

    def setrlimit(self, _kind, limits):
        soft, hard = limits
        assert hard == self.now[1]
        assert hard == resource.RLIM_INFINITY or soft <= hard
        self.now = limits


@pytest.fixture
def limits(monkeypatch):
    """Return a function that gives this process other limits."""

    def use(soft, hard):
        one = Limits(soft, hard)
        monkeypatch.setattr(descriptors.resource, "getrlimit", one.getrlimit)
        monkeypatch.setattr(descriptors.resource, "setrlimit", one.setrlimit)
        return one

    return use


@pytest.mark.parametrize("limit", [DESCRIPTORS_MIN, 1024, 4096, 20_000, DESCRIPTORS_MAX])
def test_all_shares_together_fit_the_limit(limit):
    shares = share(limit)
    used = IDLE + CONNECTIONS_MAX + shares.tables + TABLES_OPEN_MAX
    used += 3 * shares.peer_connections + shares.client_connections
    assert used <= limit
    assert shares.client_connections >= 64
    assert shares.peer_connections >= 16
    assert shares.tables >= 64


INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (256, 4096, 4096),
        (1024, 1 << 20, DESCRIPTORS_MAX),
        (1024, INFINITY, DESCRIPTORS_MAX),
        (1 << 20, 1 << 20, 1 << 20),
        (INFINITY, INFINITY, INFINITY),
        (DESCRIPTORS_MIN, DESCRIPTORS_MIN, DESCRIPTORS_MIN),
    ],
)
def test_the_limit_is_raised_as_far_as_a_node_can_use_it(limits, soft, hard, after):
    found = limits(soft, hard)
    raise_limit()
    assert found.now == (after, hard)
    expected = DESCRIPTORS_MAX if after == INFINITY else min(after, DESCRIPTORS_MAX)
    assert current_shares() == share(expected)


def test_a_limit_that_is_too_low_is_refused(limits):
    limits(100, 500)
    with pytest.raises(ConfigInvalid, match="open files is 500; a node needs at least 512"):
        raise_limit()


async def test_a_port_without_descriptors_logs_one_line_for_a_burst():
    error = OSError(errno.EMFILE, "Too many open files")
    context = {"message": "socket.accept()", "exception": error, "socket": object()}
    with capture_logs() as records:
        for _ in range(100):
            stop_on_defect(None, asyncio.get_running_loop(), context)
    assert [record["event"] for record in records] == [
        "cannot accept a connection; the port tries again in 1 s"
    ]
