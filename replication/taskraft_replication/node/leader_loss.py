"""Campaign soon after the stream from the leader breaks, before the election timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from taskraft_replication.core.types import NO_MEMBER, MemberId
from taskraft_replication.driver.driver import RaftDriver

HANG_UP_TICKS: Final = 2
"""Minimum wait, in ticks, before a follower campaigns after the leader's stream breaks. Each
follower draws a wait between 1 and 3 times this value, so that followers do not campaign at the
same time."""


class LeaderLossCampaign:
    """Starts an election after the stream from the leader has ended, which can mean a crash.

    This is safe, because with pre-vote the other members agree to an election only if they have
    lost the leader too.

    Args:
        driver: the member that may campaign.
        tick_ms: length of a tick in milliseconds.
        draw: returns a random number between 0 and 1.
        may_campaign: returns whether the member is running.
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
        """Forget ``member`` if it is the leader; campaign later if no leader is known by then."""
        if self._driver.forget_leader(member):
            ticks = HANG_UP_TICKS * (1 + 2 * self._draw())
            loop = asyncio.get_running_loop()
            loop.call_later(ticks * self._tick_ms / 1000, self._campaign_without_leader)

    def _campaign_without_leader(self) -> None:
        if self._may_campaign() and self._driver.core.leader == NO_MEMBER:
            self._driver.campaign()
