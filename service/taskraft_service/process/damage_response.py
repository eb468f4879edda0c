"""React to damage of stored data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from taskraft_replication.damage import Damage, DamagedPart
from taskraft_replication.errors import LogUnreadable
from taskraft_replication.node.node import Node
from taskraft_service.storage.rocks import StateDamaged

log: Final = structlog.get_logger(__name__)


class DamageResponse:
    """Starts the repair of damaged data, whoever found the damage; a ``DamageListener``.

    A node without other voters serves as long as it can, because no other member can help. Metrics
    and /readyz read the damage from the progress of the scrubber.

    Args:
        node: the Raft member. A failure with ``StateDamaged`` makes the process rebuild the state,
            a failure with ``LogUnreadable`` makes the node a new member.
        is_replaced_after: returns whether the node becomes a new member after a failure.
    """

    def __init__(self, node: Node, is_replaced_after: Callable[[Exception], bool]) -> None:
        self._node = node
        self._is_replaced_after = is_replaced_after

    def damage_found(self, damage: Damage) -> None:
        """Stop the node, to repair or replace it, or log the damage if no member can help."""
        lost = LogUnreadable(str(damage))
        if not self._has_others:
            log.critical("damage found; no other member can help", damage=str(damage))
        elif damage.part is DamagedPart.STATE:
            self._node.fail(StateDamaged(str(damage), is_lost=True))
        elif self._is_replaced_after(lost):
            self._node.fail(lost)
        else:
            log.critical("damage found; replace this member", damage=str(damage))

    def damage_met(self, error: StateDamaged) -> None:
        """Handle damage that a call has read; the call is refused with ``STATE_DAMAGED``.

        An error that says nothing about the stored content, such as a full disk, stops the node.
        """
        if self._has_others or not error.is_lost:
            self._node.fail(error)
        else:
            log.critical("a call has read damaged state; restore a backup", damage=str(error))

    @property
    def _has_others(self) -> bool:
        """Return whether another voter may have a whole state."""
        return len(self._node.membership.voters) > 1
