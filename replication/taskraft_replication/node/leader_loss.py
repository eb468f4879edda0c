"""Replace a leader that has hung up, without waiting for an election timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from taskraft_replication.core.types import NO_MEMBER, MemberId
from taskraft_replication.driver.driver import RaftDriver

HANG_UP_TICKS: Final = 2
"""How long, at least, a leader whose stream broke may take to come back; three times as long at
most, so that not all followers campaign in the same moment."""


class LeaderLossCampaign:
    """Looks for another leader when the stream of the present one has ended: it may have died.

    Nothing is risked: the other members consent to an election only if they have lost the leader,
    too.

    Args:
        driver: the member that may campaign.
        tick_ms: how long a tick of it takes.
        draw: returns a random number from 0 to 1.
        may_campaign: tells whether the member runs.
    """

    def __init__(
        self,
        driver: RaftDriver,
        tick_ms: int,
        draw: Callable[[], float],
        may_campaign: Callable[[], bool],
    ) -> None:
        self._driver = driver
        self._tick_ms = tick_ms
        self._draw = draw
        self._may_campaign = may_campaign

    def stream_ended(self, member: MemberId) -> None:
        """If ``member`` was the leader, and is not back soon, campaign."""
        if self._driver.forget_leader(member):
            ticks = HANG_UP_TICKS * (1 + 2 * self._draw())
            loop = asyncio.get_running_loop()
            loop.call_later(ticks * self._tick_ms / 1000, self._replace_leader)

    def _replace_leader(self) -> None:
        if self._may_campaign() and self._driver.core.leader == NO_MEMBER:
            self._driver.campaign()
