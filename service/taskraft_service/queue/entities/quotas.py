"""Refuse objects above the limits on their number, in the cluster and for one principal.

The numbers are constants of ``Limits``, so all replicas refuse the same commands.
"""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import Reason, Refusal


def total_refusal(limit: str, most: int, what: str, advice: str) -> Refusal:
    """Return the refusal of an object when the cluster has the maximum number of such objects.

    Args:
        limit: name of the limit.
        most: the maximum in force.
        what: the objects, in the plural.
        advice: what the caller can do.
    """
    return Refusal(
        Reason.LIMIT_REACHED,
        f"the cluster has {most} {what}, the maximum; {advice}",
        {"limit": limit, "value": str(most)},
    )


def share_refusal(limit: str, most: int, what: str, owner: str, advice: str) -> Refusal:
    """Return the refusal of an object when its owner has the maximum number of such objects.

    Args:
        limit: name of the limit.
        most: the maximum in force.
        what: the objects, in the plural.
        owner: the principal.
        advice: what the caller can do.
    """
    return Refusal(
        Reason.LIMIT_REACHED,
        f'principal "{owner}" has {most} {what}, the maximum for one principal; {advice}',
        {"limit": limit, "value": str(most), "principal": owner},
    )
