"""Read the filter of ListTasks: so far ``state = NAME``."""

from __future__ import annotations

import re
from typing import Final

from service.api.violations import Violations
from service.queue.commands import State

_STATE: Final = re.compile(r"\s*state\s*=\s*([A-Za-z_]+)\s*")


def states_of(text: str) -> frozenset[State]:
    """Return the states that a filter lets through; none: all.

    Raises:
        Refused: the filter is malformed, or of a kind that is not implemented yet.
    """
    if not text.strip():
        return frozenset()
    wrong = Violations()
    match = _STATE.fullmatch(text)
    if match is None:
        wrong.unimplemented("filter")
    elif match[1] not in State.__members__ or match[1] == State.GONE.name:
        wrong.add("filter", f"{match[1]} is not a state")
    wrong.raise_any()
    assert match is not None
    return frozenset({State[match[1]]})
