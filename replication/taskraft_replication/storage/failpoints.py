"""Name every step by which something becomes durable, and let a test make one of them fail.

A failpoint lies before and after each step: ``append.before_sync``, ``state.after_apply``. Steps
on files are told apart at the seam to the disk, by the file and the operation, so that the storage
itself knows nothing of them and pays nothing: without rules the seam is not even wrapped.

Rules are written as in ``append.before_sync=kill@3,flush.after_sync=stall:200@1+``: at a point do
something, at its third crossing only or from the first one on; without ``@`` at the first one.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

_WHOLE_FILE: Final = ("create", "write", "sync", "rename", "sync_directory")

STEPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # Files of the log; ``segment`` is one that is being prepared, under another name.
        "append": ("write", "sync", "truncate", "allocate"),
        "segment": ("create", "allocate", "write", "sync", "rename", "sync_directory"),
        "trim": ("remove", "sync_directory"),
        "mark": ("create", "allocate", "write", "sync", "sync_directory"),
        # Small files that are replaced as a whole.
        "identity": _WHOLE_FILE,
        "directory_id": _WHOLE_FILE,
        "incarnation": _WHOLE_FILE,
        "hard_state": _WHOLE_FILE,
        "log_start": _WHOLE_FILE,
        "membership": _WHOLE_FILE,
        "removed": _WHOLE_FILE,
        "installing": (*_WHOLE_FILE, "remove"),
        "pointer": _WHOLE_FILE,
        # The content of a snapshot that is received.
        "incoming": ("create", "write", "sync", "remove"),
        "directory": ("make",),
        # The state machine. ``write`` is one batch into its store, ``stage`` builds a received
        # state beside the old one, ``switch`` puts it in the old one's place.
        "state": ("apply", "write", "flush", "freeze", "stage", "switch", "adopt", "discard"),
    }
)
"""Every step, by what it is done to."""

NAMES: Final = frozenset(
    f"{subject}.{side}_{operation}"
    for subject, operations in STEPS.items()
    for operation in operations
    for side in ("before", "after")
)
"""Every failpoint."""

_RULE: Final = re.compile(
    r"(?P<name>[a-z_.]+)=(?P<action>[a-z]+)(?::(?P<ms>\d{1,6}))?(?:@(?P<first>\d{1,9})(?P<on>\+)?)?"
)


class FailpointUnknown(ValueError):
    """A rule is malformed or names no failpoint; the text says which."""


class Action(Enum):
    """What happens at a failpoint."""

    KILL = "kill"
    """The process ends as by SIGKILL: the page cache survives, what was not written does not."""
    EIO = "eio"
    """The step fails as on a broken disk."""
    ENOSPC = "enospc"
    """The step fails as on a full disk."""
    STALL = "stall"
    """The step takes so many milliseconds longer."""


@dataclass(slots=True, frozen=True)
class Rule:
    """Do ``action`` at the failpoint ``name``, at its crossings ``first`` to ``last``."""

    name: str
    action: Action
    stall_ms: int = 0
    first: int = 1
    last: float = 1


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules that are separated by commas.

    Raises:
        FailpointUnknown: a rule is malformed, or names no failpoint or action.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise FailpointUnknown(f'"{text}" is not name=action[:ms][@first[+]]')
    if match["name"] not in NAMES:
        raise FailpointUnknown(f"there is no failpoint {match['name']}")
    if match["action"] not in {action.value for action in Action}:
        raise FailpointUnknown(f"a failpoint cannot {match['action']}")
    action = Action(match["action"])
    if (action is Action.STALL) != (match["ms"] is not None):
        raise FailpointUnknown(f'"{text}": a stall, and nothing else, needs its milliseconds')
    first = int(match["first"] or 1)
    if first == 0:
        raise FailpointUnknown(f'"{text}": crossings are counted from 1')
    last = float("inf") if match["on"] else first
    return Rule(match["name"], action, int(match["ms"] or 0), first, last)


def perform(rule: Rule) -> None:
    """Do what a rule says to this process."""
    match rule.action:
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.STALL:
            time.sleep(rule.stall_ms / 1000)
        case Action.EIO | Action.ENOSPC:
            number = errno.EIO if rule.action is Action.EIO else errno.ENOSPC
            raise OSError(number, f"{os.strerror(number)} (failpoint {rule.name})")


class Failpoints:
    """The rules of a process, and how often each failpoint was crossed; for any thread."""

    def __init__(self, rules: tuple[Rule, ...] = (), act: Callable[[Rule], None] = perform) -> None:
        unknown = {rule.name for rule in rules} - NAMES
        assert not unknown, unknown
        self.crossings: dict[str, int] = {}
        self._rules = rules
        self._act = act
        self._counting = threading.Lock()

    @property
    def is_armed(self) -> bool:
        """Tell whether there is any rule; without one nobody needs to come here."""
        return bool(self._rules)

    def cross(self, name: str) -> None:
        """Pass a failpoint; what its rules say happens here."""
        assert name in NAMES, f"{name} is missing in the table of steps"
        with self._counting:
            count = self.crossings[name] = self.crossings.get(name, 0) + 1
        for rule in self._rules:
            if rule.name == name and rule.first <= count <= rule.last:
                self._act(rule)

    @contextmanager
    def around(self, subject: str, operation: str) -> Iterator[None]:
        """Pass the failpoint before a step, and if the step succeeds the one after it."""
        self.cross(f"{subject}.before_{operation}")
        yield
        self.cross(f"{subject}.after_{operation}")


NO_FAILPOINTS: Final = Failpoints()
"""For everybody who is not being tested."""
