"""List the options of the commands of interaction traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "add-nodes": frozenset(
        {
            "voters",
            "learners",
            "inflight",
            "index",
            "content",
            "async-storage-writes",
            "prevote",
            "checkquorum",
            "max-committed-size-per-ready",
            "disable-conf-change-validation",
            "read-only",
            "step-down-on-removal",
            # The following options are ours:
            "max-size-per-msg",
            "inflight-bytes",
            "max-uncommitted-size",
            "disable-proposal-forwarding",
        }
    ),
    "deliver-msgs": frozenset({"drop", "type", "from"}),
    "propose-conf-change": frozenset({"v1", "transition"}),
    "report-snapshot": frozenset({"ok"}),
    "set-randomized-election-timeout": frozenset({"timeout"}),
    "transfer-leadership": frozenset({"from", "to"}),
}
"""By command, its options; every command also takes ``log-level`` for one directive."""
