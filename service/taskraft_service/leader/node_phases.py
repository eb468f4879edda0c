"""Follow the role of this node: INIT, STARTUP, RUNNING, ENDING, WAITING.

The table is the whole logic; what is done on entering a phase is told to listeners. Driven by Raft:
elections and depositions come from the Raft node, the rest from the service itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Final


class NodePhase(IntEnum):
    """What a node does; numbers are those of taskraft.v1.NodeState.Phase."""

    INIT = 1
    """Replays its log; answers health and state only."""
    STARTUP = 2
    """Elected: waits until its Startup command is applied."""
    RUNNING = 3
    """Leads and serves."""
    ENDING = 4
    """Lost leadership or hands it over: ends what only a leader can do."""
    WAITING = 5
    """Follows: forwards, and reads locally on request."""


class PhaseEvent(Enum):
    """What moves a node from phase to phase."""

    CAUGHT_UP = "caught up"
    """A member that has applied what was committed when it started."""
    ELECTED = "elected"
    STARTED = "started"
    """The Startup command of this term is applied."""
    HAND_OVER = "hand over"
    """Leadership is to go to another member."""
    KEPT = "kept"
    """The hand-over did not happen: still the leader of the same term."""
    DEPOSED = "deposed"
    SETTLED = "settled"
    """Everything that only a leader does has been ended."""


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
"""Every allowed move. Another one is a defect and stops the node."""


class PhaseTransitionInvalid(Exception):
    """A happening that the phase does not know; the node's idea of itself is broken."""


class PhaseMachine:
    """The phase of this node, and who wants to know when it changes."""

    def __init__(self) -> None:
        self._phase = NodePhase.INIT
        self._listeners: list[Callable[[NodePhase], None]] = []

    @property
    def phase(self) -> NodePhase:
        """What the node does now."""
        return self._phase

    @property
    def serves(self) -> bool:
        """Tell whether this node takes mutations itself."""
        return self._phase is NodePhase.RUNNING

    def listen(self, listener: Callable[[NodePhase], None]) -> None:
        """Call ``listener`` with the new phase after each change, in order of registration."""
        self._listeners.append(listener)

    def apply(self, happening: PhaseEvent) -> NodePhase:
        """Move to the next phase and return it.

        Raises:
            RoleChangeImpossible: the table has no such move.
        """
        following = PHASE_TRANSITIONS.get((self._phase, happening))
        if following is None:
            raise PhaseTransitionInvalid(f"{happening.value} in {self._phase.name}")
        if following is not self._phase:
            self._phase = following
            for listener in self._listeners:
                listener(following)
        return following
