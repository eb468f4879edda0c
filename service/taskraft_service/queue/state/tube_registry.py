"""Hold the tubes by name and number, and those that differ from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_driver import TubeDriver, driver_of
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.state.tube_totals import TubeTotals
from taskraft_service.queue.store.keys import tube_key
from taskraft_service.queue.store.store import Write


class TubeRegistry(dict[str, "QueueTube"]):
    """The tubes by name, without truncated and dropped ones: a dictionary only its methods change.

    ``used`` has the tubes that changed before the last batch of writes; ``number`` is the number of
    the newest tube. ``temporary`` has the names of the temporary tubes.
    """

    __slots__ = (
        "_dirty",
        "_ended",
        "by_number",
        "drivers",
        "number",
        "temporary",
        "totals",
        "used",
    )

    def __init__(self, drivers: Mapping[str, TubeDriver], number: int) -> None:
        """Start empty; the first tube gets the number after ``number``."""
        super().__init__()
        self.by_number: dict[int, QueueTube] = {}
        self.number = number
        self.drivers = drivers
        self.totals = TubeTotals(self.by_number)
        self.temporary: dict[str, None] = {}
        self._dirty: list[QueueTube] = []
        self.used: list[QueueTube] = []
        self._ended: list[QueueTube] = []

    def find(self, name: str) -> QueueTube | Refusal:
        """Return a tube, or a refusal."""
        tube = self.get(name)
        if tube is None:
            return Refusal(Reason.TUBE_NOT_FOUND, f"no tube is called {name!r}", {"tube": name})
        return tube

    def admit(self, tube: QueueTube) -> None:
        """Add a tube by name and number, and give a CUSTOM tube its driver.

        Raises:
            TubeDriverMissing: the driver is not installed on this node.
        """
        if tube.kind is TubeKind.CUSTOM:
            tube.custom = driver_of(self.drivers, tube.name, tube.driver, tube.driver_version)
        self[tube.name] = tube
        self.by_number[tube.number] = tube
        if tube.is_temporary:
            self.temporary[tube.name] = None

    def add(self, tube: QueueTube) -> None:
        """Add a new tube."""
        self.admit(tube)
        self.totals.add(tube)
        self.touch(tube)

    def remove(self, tube: QueueTube) -> None:
        """Remove a tube that is truncated or dropped."""
        del self[tube.name]
        del self.by_number[tube.number]
        self.totals.remove(tube)
        self.temporary.pop(tube.name, None)
        self._ended.append(tube)

    def touch(self, tube: QueueTube) -> None:
        """Note that a tube differs from its record."""
        if not tube.dirty:
            tube.dirty = True
            self._dirty.append(tube)

    def collect_ended(self, writes: list[Write]) -> None:
        """Append the deletion of the records of removed tubes to ``writes``."""
        for tube in self._ended:
            writes.append((tube_key(tube.number), None))
            if tube.written:
                writes.append((tube.written, None))
        self._ended.clear()

    def fetch_changed(self) -> Sequence[QueueTube]:
        """Return the tubes that differ from their records; the caller writes them now."""
        for tube in self._dirty:
            tube.dirty = False
        self.used = [tube for tube in self._dirty if tube.number in self.by_number]
        self._dirty.clear()
        return self.used
