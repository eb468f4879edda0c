"""Compute the digests of the state in the background, for the comparison between members."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from taskraft_replication.core.types import LogIndex
from taskraft_service.machine.open_database import FixedState
from taskraft_service.machine.state_machine import UseView
from taskraft_service.queue.persistence.record_digest import DIGESTS
from taskraft_service.storage.rocks import StateDamaged
from taskraft_service.storage.scrubber import Pause
from taskraft_service.versions import DigestVersion


class StateDigests:
    """Computes digests on a thread of its own, with the CPU share of the scrubber.

    Args:
        view_at: calls a function with the state after an entry, see ``QueueMachine``.
        computed: receives the digests after an entry and their version, on the event loop.
        fail: stops the node because the state is damaged.
        call_soon: calls a function on the event loop.
    """

    def __init__(
        self,
        view_at: Callable[[LogIndex, UseView], None],
        computed: Callable[[LogIndex, DigestVersion, Sequence[int]], None],
        fail: Callable[[Exception], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._view_at = view_at
        self._computed = computed
        self._fail = fail
        self._call_soon = call_soon
        self._stopped = threading.Event()
        self._running: threading.Thread | None = None

    def begin(self, index: LogIndex) -> None:
        """Compute the digests after an entry; an earlier computation is cancelled."""
        self._stopped.set()
        self._stopped = stopped = threading.Event()

        def run(reached: LogIndex, version: DigestVersion, state: FixedState) -> None:
            work = (reached, version, state, stopped)
            self._running = threading.Thread(
                target=self._run, args=work, name="digest", daemon=True
            )
            self._running.start()

        self._view_at(index, run)

    def stop(self, seconds: float) -> None:
        """End the computation, which holds the database open; blocks for at most ``seconds``."""
        self._stopped.set()
        if self._running is not None:
            self._running.join(seconds)

    def _run(
        self, index: LogIndex, version: DigestVersion, state: FixedState, stopped: threading.Event
    ) -> None:
        pause = Pause(stopped.wait)
        steps = DIGESTS[version](state.scan)
        try:
            while not stopped.is_set():
                pause.after(next(steps))
        except StopIteration as stop:
            parts = stop.value
            self._call_soon(lambda: self._computed(index, version, parts))
        except StateDamaged as error:
            damage = error
            self._call_soon(lambda: self._fail(damage))
