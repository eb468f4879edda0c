"""Hold which principal has created each tube, and count the tubes of each principal.

A tube that was created without access control has no owner here. The owner does not change: a
truncated tube keeps its owner under its new number.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskraft_service.queue.entities.owned_counts import OwnedCounts
from taskraft_service.queue.store.keys import TUBE_OWNER, prefix_stop, tube_of_owner, tube_owner_key
from taskraft_service.queue.store.store import Store, Write


class TubeOwners:
    """The owners of the existing tubes, by the numbers of the tubes."""

    __slots__ = ("_by_tube", "_dirty", "counts")

    def __init__(self) -> None:
        """Start without owners."""
        self._by_tube: dict[int, str] = {}
        self._dirty: dict[int, None] = {}
        self.counts = OwnedCounts()

    def of(self, tube: int) -> str:
        """Return the owner of a tube; empty: the tube has none."""
        return self._by_tube.get(tube, "")

    def add(self, tube: int, owner: str) -> None:
        """Set the owner of a new tube; an empty name changes nothing."""
        if owner:
            self._by_tube[tube] = owner
            self._dirty[tube] = None
            self.counts.add(owner)

    def remove(self, tube: int) -> None:
        """Forget the owner of a tube that is dropped or truncated."""
        owner = self._by_tube.pop(tube, "")
        if owner:
            self._dirty[tube] = None
            self.counts.remove(owner)

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for tube in self._dirty:
            owner = self._by_tube.get(tube)
            writes.append((tube_owner_key(tube), None if owner is None else owner.encode()))
        self._dirty.clear()

    def restore(self, store: Store) -> None:
        """Read all owners from the store."""
        for key, owner in store.scan(TUBE_OWNER, prefix_stop(TUBE_OWNER)):
            self._by_tube[tube_of_owner(key)] = owner.decode()
            self.counts.add(owner.decode())

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the state that must be equal on all replicas; nothing without owners."""
        for tube, owner in sorted(self._by_tube.items()):
            yield repr((tube, owner)).encode()
