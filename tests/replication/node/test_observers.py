"""All observers are notified, and changes wake waiting coroutines."""

import logging

import pytest

from taskraft_replication.core.types import (
    NO_MEMBER,
    ConfState,
    LogIndex,
    MemberId,
    RaftRole,
    SoftState,
)
from taskraft_replication.node.observers import Observers

LEADER = SoftState(MemberId(1), RaftRole.LEADER)
JOINT = ConfState((MemberId(1),), (MemberId(3),), (MemberId(1), MemberId(2)))


class Notes:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def role_changed(self, state, term) -> None:
        self.heard.append((state, term))

    def applied(self, index) -> None:
        self.heard.append(index)

    def synced(self, entries, log_bytes) -> None:
        self.heard.append(("synced", entries, log_bytes))

    def disk_stalled(self, *, is_stalled) -> None:
        self.heard.append(("stalled", is_stalled))

    def membership_changed(self, conf_state) -> None:
        self.heard.append(conf_state)


async def test_all_observers_get_every_event_and_the_node_gets_memberships_first():
    first, second = Notes(), Notes()
    observers = Observers(7, MemberId(1), lambda state: first.heard.append(("node", state)))
    observers.join(first)
    observers.join(second)
    turn = observers.changes.wait()
    observers.applied(LogIndex(5))
    observers.synced(2, 300)
    observers.disk_stalled(is_stalled=True)
    assert not turn.done()
    observers.role_changed(LEADER, 4)
    assert turn.done()
    turn = observers.changes.wait()
    observers.membership_changed(JOINT)
    assert turn.done()
    heard = [5, ("synced", 2, 300), ("stalled", True), (LEADER, 4), ("node", JOINT), JOINT]
    assert first.heard == heard
    assert second.heard == [each for each in heard if each != ("node", JOINT)]


@pytest.mark.parametrize(
    ("conf_state", "said"),
    [
        (JOINT, "group 7: member 1: voters (1,) and (1, 2), learners (3,)"),
        (ConfState((MemberId(1),)), "group 7: member 1: voters (1,), learners ()"),
    ],
)
def test_role_and_membership_changes_are_logged(caplog, conf_state, said):
    caplog.set_level(logging.INFO)
    observers = Observers(7, MemberId(1), lambda _: None)
    observers.role_changed(SoftState(NO_MEMBER, RaftRole.FOLLOWER), 4)
    observers.membership_changed(conf_state)
    observers.disk_stalled(is_stalled=True)
    observers.disk_stalled(is_stalled=False)
    assert caplog.messages == [
        "group 7: member 1 is follower in term 4, leader 0",
        said,
        "group 7: member 1: the disk does not answer",
        "group 7: member 1: the disk answers again",
    ]
