"""Track the phase of this node: INIT, STARTUP, RUNNING, ENDING or WAITING.

The table `PHASE_TRANSITIONS` has every allowed transition. Raft reports elections and lost
leaderships; the service reports the other events. Listeners do the work that a phase change
requires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Final


class NodePhase(IntEnum):
    """Phase of a node; the numbers equal those of taskraft.v1.NodeState.Phase."""

    INIT = 1
    """Replays its log; answers only health and state calls."""
    STARTUP = 2
    """Was elected; waits until its Startup command is applied."""
    RUNNING = 3
    """Leads and serves."""
    ENDING = 4
    """Lost leadership or transfers it; stops the leader-only work."""
    WAITING = 5
    """Follows: forwards calls, and serves local reads on request."""


class PhaseEvent(Enum):
    """Event that may change the phase of a node."""

    CAUGHT_UP = "caught up"
    """The node has applied everything that was committed when it first heard of a leader."""
    ELECTED = "elected"
    STARTED = "started"
    """The Startup command of this term is applied."""
    HAND_OVER = "hand over"
    """A leadership transfer begins."""
    KEPT = "kept"
    """The transfer failed; this node still leads in the same term."""
    DEPOSED = "deposed"
    SETTLED = "settled"
    """All leader-only work has stopped."""


PHASE_TRANSITIONS: Final[Mapping[tuple[NodePhase, PhaseEvent], NodePhase]] = {
    (NodePhase.INIT, PhaseEvent.CAUGHT_UP): NodePhase.WAITING,
    (NodePhase.INIT, PhaseEvent.ELECTED): NodePhase.STARTUP,
    (NodePhase.WAITING, PhaseEvent.ELECTED): NodePhase.STARTUP,
    (NodePhase.STARTUP, PhaseEvent.STARTED): NodePhase.RUNNING,
    (NodePhase.STARTUP, PhaseEvent.DEPOSED): NodePhase.ENDING,
    (NodePhase.RUNNING, PhaseEvent.HAND_OVER): NodePhase.ENDING,
    (NodePhase.RUNNING, PhaseEvent.DEPOSED): NodePhase.ENDING,
    (NodePhase.ENDING, PhaseEvent.KEPT): NodePhase.RUNNING,
    (NodePhase.ENDING, PhaseEvent.DEPOSED): NodePhase.ENDING,
    (NodePhase.ENDING, PhaseEvent.SETTLED): NodePhase.WAITING,
}
"""Every allowed transition. Any other event is a bug and stops the node."""


class PhaseTransitionInvalid(Exception):
    """The current phase does not allow this event.

    This is a bug; the node stops.
    """


class PhaseMachine:
    """The phase of this node, with the listeners for its changes."""

    def __init__(self) -> None:
        # Plain attributes: each call to the node reads them.
        self.phase = NodePhase.INIT
        self.serves = False
        """Whether this node executes mutations itself."""
        self._listeners: list[Callable[[NodePhase], None]] = []

    def listen(self, listener: Callable[[NodePhase], None]) -> None:
        """Register a listener; it is called with the new phase after each change."""
        self._listeners.append(listener)

    def apply(self, event: PhaseEvent) -> NodePhase:
        """Apply an event and return the resulting phase.

        Raises:
            PhaseTransitionInvalid: the current phase does not allow the event.
        """
        following = PHASE_TRANSITIONS.get((self.phase, event))
        if following is None:
            raise PhaseTransitionInvalid(f'phase {self.phase.name} does not allow "{event.value}"')
        if following is not self.phase:
            self.phase = following
            self.serves = following is NodePhase.RUNNING
            for listener in self._listeners:
                listener(following)
        return following
