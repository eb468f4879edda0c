"""Convert a store to the format of the cluster version that is in force, one step per format.

The chain runs when a database is opened, and when an entry has raised the cluster version. Each
part of a step is one batch that also writes the marker of the step, so a kill at any point leaves
either the part or nothing of it. The last batch of a step writes the meta record in the next format
and removes the marker. No entry is applied while a step is incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from taskraft_service.queue.persistence.state_records import format_of
from taskraft_service.queue.store.keys import META, UPGRADE_MARKER
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value
from taskraft_service.versions import FORMATS, StateVersion, check_version


@value
class StepPart:
    """One batch of a step.

    ``cursor``: where the next part begins; None: this is the last part, and ``meta`` is the meta
    record in the next format.
    """

    writes: tuple[Write, ...]
    cursor: bytes | None
    meta: bytes = b""


Step: TypeAlias = Callable[[Store, bytes], StepPart]
"""Returns the part of a step that begins at a cursor; empty: the first part."""

STEPS: Final[Mapping[StateVersion, Step]] = {}
"""The step to each format from the format before it; format 18 is the first."""


class UpgradedStore(Store, Protocol):
    """A store that the chain can convert."""

    def write(self, writes: Iterable[Write]) -> None:
        """Apply writes in order, as one batch."""


def upgrade_store(store: UpgradedStore, steps: Mapping[StateVersion, Step] = STEPS) -> int:
    """Convert a store to the format of its cluster version; return the number of batches written.

    Continues a conversion that was interrupted. Does nothing for an empty store.

    Raises:
        ClusterVersionUnknown, UnknownFormatError: see ``format_of``; nothing was written.
    """
    meta = store.get(META)
    if meta is None:
        return 0
    written = 0
    found = format_of(meta)
    target = FORMATS[check_version(int.from_bytes(meta[1:3], "big"))].state
    for version in sorted(each for each in StateVersion if found < each <= target):
        written += _run_step(store, version, steps[version])
    return written


def _run_step(store: UpgradedStore, version: StateVersion, step: Step) -> int:
    """Run a step from its marker on; return the number of batches written."""
    marker = store.get(UPGRADE_MARKER) or b""
    written = 0
    while True:
        part = step(store, marker)
        written += 1
        if part.cursor is None:
            assert part.meta[0] == version, f"the step to format {version} wrote {part.meta[0]}"
            store.write((*part.writes, (UPGRADE_MARKER, None), (META, part.meta)))
            return written
        assert part.cursor > marker, "a part of a step must make progress"
        marker = part.cursor
        store.write((*part.writes, (UPGRADE_MARKER, marker)))
