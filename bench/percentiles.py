"""Compute the median and the 99th percentile of measured values."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles


def median_and_p99(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile of all measured values, in their unit.

    Both lie between the minimum and the maximum of the values, however few the values are.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values were measured; measure at least 1 value")
    if len(values) == 1:
        return values[0], values[0]
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]
