"""Pass the driver's notifications to the log, to waiting coroutines and to observers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from taskraft_replication.core.types import ConfState, LogIndex, MemberId, SoftState, Term
from taskraft_replication.node.change_notifier import ChangeNotifier
from taskraft_replication.observer import Observer

_log = logging.getLogger(__name__)


class Observers:
    """All observers of one member; is itself the ``Observer`` of the member's driver."""

    def __init__(
        self,
        group_id: int,
        member_id: MemberId,
        membership_changed: Callable[[ConfState], None],
    ) -> None:
        """``membership_changed`` is called before the observers."""
        self.changes = ChangeNotifier()
        """Notified of each change of role or membership."""
        self._name = f"group {group_id}: member {member_id}"
        self._membership_changed = membership_changed
        self._observers: list[Observer] = []

    def join(self, observer: Observer) -> None:
        """Add an observer."""
        self._observers.append(observer)

    def role_changed(self, state: SoftState, term: Term) -> None:
        """Handle a change of this member's role or of the known leader."""
        self.changes.notify_all()
        _log.info(
            "%s is %s in term %d, leader %d",
            self._name,
            state.role.value,
            term,
            state.leader,
        )
        for observer in self._observers:
            observer.role_changed(state, term)

    def applied(self, index: LogIndex) -> None:
        """Called after the state machine has applied all entries up to ``index``."""
        for observer in self._observers:
            observer.applied(index)

    def synced(self, entries: int, log_bytes: int) -> None:
        """Called after a batch of the log has become durable here; the next entry can be built."""
        for observer in self._observers:
            observer.synced(entries, log_bytes)

    def disk_stalled(self, *, is_stalled: bool) -> None:
        """Handle a disk without an answer for ``DiskPolicy.stall_ticks``, or its recovery."""
        if is_stalled:
            _log.warning("%s: the disk does not answer", self._name)
        else:
            _log.warning("%s: the disk answers again", self._name)
        for observer in self._observers:
            observer.disk_stalled(is_stalled=is_stalled)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Handle a change of the membership."""
        self.changes.notify_all()
        _log.info(
            "%s: voters %s%s, learners %s",
            self._name,
            conf_state.voters,
            f" and {conf_state.voters_outgoing}" if conf_state.voters_outgoing else "",
            conf_state.learners,
        )
        self._membership_changed(conf_state)
        for observer in self._observers:
            observer.membership_changed(conf_state)
