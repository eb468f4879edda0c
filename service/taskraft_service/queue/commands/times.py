"""Say what counts as without limit."""

from __future__ import annotations

from typing import Final

FOREVER_MS: Final = 100 * 365 * 86_400_000
"""Durations from here on are without limit (tarantool/queue's 100 years)."""
