"""Define a failpoint at each step that makes data durable, and let tests trigger faults there.

There is a failpoint before and after each step: ``append.before_sync``, ``state.after_apply``. File
operations are identified at the file system interface, by file and operation. The code of the
distributions contains no failpoints; see ``tests.failpoints`` for a node with failpoints.

Rules have the form ``append.before_sync=kill@3,state.after_sync=eio@1+``: perform an action at a
failpoint, at its third crossing only, or from the first crossing on. Without ``@`` the action
happens at the first crossing. ``tools.sync_fault`` makes disks slow.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

_WHOLE_FILE: Final = ("create", "write", "sync", "rename", "sync_directory")

STEPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # Files of the log; ``segment`` is a segment that is still under its temporary name.
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
        "restoring": (*_WHOLE_FILE, "remove"),
        # The content of an incoming snapshot.
        "incoming": ("create", "write", "sync", "remove"),
        "directory": ("make",),
        # The state machine. ``write`` is one batch into its store, ``sync`` makes the batches of
        # the store durable, ``stage`` builds a received state beside the old state, and ``switch``
        # replaces the old state.
        "state": (
            "apply",
            "write",
            "flush",
            "freeze",
            "stage",
            "switch",
            "adopt",
            "discard",
            "sync",
        ),
    }
)
"""All steps, by the file or object they act on."""

NAMES: Final = frozenset(
    f"{subject}.{side}_{operation}"
    for subject, operations in STEPS.items()
    for operation in operations
    for side in ("before", "after")
)
"""The names of all failpoints."""

_RULE: Final = re.compile(
    r"(?P<name>[a-z_.]+)=(?P<action>[a-z]+)(?:@(?P<first>\d{1,9})(?P<on>\+)?)?"
)


class FailpointUnknown(ValueError):
    """A rule is malformed or names an unknown failpoint or action."""


class Action(Enum):
    """The fault at a failpoint."""

    KILL = "kill"
    """The process ends as by SIGKILL: data in the page cache survives, unwritten data is lost."""
    EIO = "eio"
    """The step fails as on a broken disk."""
    ENOSPC = "enospc"
    """The step fails as on a full disk."""


@dataclass(slots=True, frozen=True)
class Rule:
    """Perform ``action`` at the failpoint ``name``, from its crossing ``first`` to ``last``."""

    name: str
    action: Action
    first: int = 1
    last: float = 1


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse rules that are separated by commas.

    Raises:
        FailpointUnknown: a rule is malformed, or names no failpoint or action.
    """
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


def _parse(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise FailpointUnknown(f'"{text}" is not name=action[@first[+]]')
    if match["name"] not in NAMES:
        raise FailpointUnknown(f"unknown failpoint {match['name']}")
    if match["action"] not in {action.value for action in Action}:
        raise FailpointUnknown(f"unknown action {match['action']}: use kill, eio or enospc")
    first = int(match["first"] or 1)
    if first == 0:
        raise FailpointUnknown(f'"{text}": crossings are counted from 1')
    last = float("inf") if match["on"] else first
    return Rule(match["name"], Action(match["action"]), first, last)


def perform(rule: Rule) -> None:
    """Perform the action of a rule in this process."""
    match rule.action:
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.EIO | Action.ENOSPC:
            number = errno.EIO if rule.action is Action.EIO else errno.ENOSPC
            raise OSError(number, f"{os.strerror(number)} (failpoint {rule.name})")


class Failpoints:
    """The rules of a process, with the number of crossings of each failpoint; thread-safe."""

    def __init__(self, rules: tuple[Rule, ...] = (), act: Callable[[Rule], None] = perform) -> None:
        unknown = {rule.name for rule in rules} - NAMES
        assert not unknown, unknown
        self.crossings: dict[str, int] = {}
        self._rules = rules
        self._act = act
        self._counting = threading.Lock()

    def cross(self, name: str) -> None:
        """Cross a failpoint and perform the actions of its rules."""
        assert name in NAMES, f"{name} is missing in STEPS"
        with self._counting:
            count = self.crossings[name] = self.crossings.get(name, 0) + 1
        for rule in self._rules:
            if rule.name == name and rule.first <= count <= rule.last:
                self._act(rule)

    @contextmanager
    def around(self, subject: str, operation: str) -> Iterator[None]:
        """Cross the failpoint before a step and, if the step succeeds, the failpoint after it."""
        self.cross(f"{subject}.before_{operation}")
        yield
        self.cross(f"{subject}.after_{operation}")
