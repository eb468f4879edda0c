"""Execute the directives of the quorum and membership tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

from taskraft_replication.core import membership
from taskraft_replication.core.config import UNLIMITED, RaftConfig
from taskraft_replication.core.errors import ConfChangeFault, ConfChangeInvalid
from taskraft_replication.core.quorum import (
    EVERYTHING,
    VoteResult,
    joint_index,
    joint_vote,
    majority_index,
    majority_vote,
)
from taskraft_replication.core.tracker import ProgressTracker
from taskraft_replication.core.types import ConfState, LogIndex, MemberId
from tests.raft_traces.script import Directive
from tests.raft_traces.writing import PROGRESS_NAMES, parse_changes, write_configuration

_VOTE_NAMES: Final = {
    VoteResult.PENDING: "VotePending",
    VoteResult.LOST: "VoteLost",
    VoteResult.WON: "VoteWon",
}


class QuorumTable:
    """``committed`` and ``vote``: the result of one majority or of two."""

    @staticmethod
    def knows(command: str) -> bool:
        """Return whether ``command`` is a command of quorum tables."""
        return command in ("committed", "vote")

    def run(self, directive: Directive) -> str:
        """Execute ``directive``; return its output."""
        incoming = _members(directive.values("cfg"))
        outgoing = _members(directive.values("cfgj"))
        is_joint = bool(directive.values("cfgj"))
        known = list(dict.fromkeys([*incoming, *outgoing]))
        configuration = ConfState(incoming, voters_outgoing=outgoing)
        if directive.command == "vote":
            votes = {
                member: said == "y"
                for member, said in zip(known, directive.values("votes"), strict=True)
                if said != "_"
            }
            result = joint_vote(configuration, votes)
            swapped = ConfState(outgoing, voters_outgoing=incoming)
            assert joint_vote(swapped, votes) is result
            assert is_joint or majority_vote(incoming, votes) is result
            return _VOTE_NAMES[result]
        acked = {
            member: LogIndex(int(said))
            for member, said in zip(known, directive.values("idx"), strict=True)
            if said != "_"
        }
        index = joint_index(configuration, acked)
        assert joint_index(ConfState(outgoing, voters_outgoing=incoming), acked) == index
        assert is_joint or majority_index(incoming, acked) == index
        everyone = sorted(known)
        shown = "∞" if index == EVERYTHING else str(index)
        return _bars(everyone, acked) + shown


class MembershipTable:
    """``simple``, ``enter-joint`` and ``leave-joint``, applied in sequence to one configuration."""

    def __init__(self) -> None:
        nobody_in_the_table = MemberId(UNLIMITED)
        self._members = ProgressTracker(RaftConfig(nobody_in_the_table))
        self._last_index = LogIndex(0)

    @staticmethod
    def knows(command: str) -> bool:
        """Return whether ``command`` is a command of membership tables."""
        return command in _CHANGES

    def run(self, directive: Directive) -> str:
        """Execute ``directive``; return its output."""
        try:
            after = _CHANGES[directive.command](self._members.configuration, directive)
        except ConfChangeInvalid as invalid:
            return _FAULTS[invalid.fault]
        else:
            self._members.adopt(after, self._last_index)
            return self._show()
        finally:
            self._last_index = LogIndex(self._last_index + 1)

    def _show(self) -> str:
        lines = [write_configuration(self._members.configuration)]
        for member, progress in self._members.progress.items():
            mark = "" if member in self._members.voters else " learner"
            state = PROGRESS_NAMES[progress.state]
            lines.append(f"{member}: {state} match={progress.match} next={progress.next}{mark}")
        return "\n".join(lines)


def _simple(configuration: ConfState, directive: Directive) -> ConfState:
    return membership.simple(configuration, parse_changes(_words(directive)))


def _enter_joint(configuration: ConfState, directive: Directive) -> ConfState:
    changes = parse_changes(_words(directive))
    auto_leave = directive.flag("autoleave")
    return membership.enter_joint(configuration, changes, auto_leave=auto_leave)


def _leave_joint(configuration: ConfState, _directive: Directive) -> ConfState:
    return membership.leave_joint(configuration)


_CHANGES: Final[Mapping[str, Callable[[ConfState, Directive], ConfState]]] = {
    "simple": _simple,
    "enter-joint": _enter_joint,
    "leave-joint": _leave_joint,
}
_FAULTS: Final = {
    ConfChangeFault.ALREADY_JOINT: "config is already joint",
    ConfChangeFault.NOT_JOINT: "can't leave a non-joint config",
    ConfChangeFault.SIMPLE_WHILE_JOINT: "can't apply simple config change in joint config",
    ConfChangeFault.NO_VOTERS_BEFORE: "can't make a zero-voter config joint",
    ConfChangeFault.NO_VOTERS_AFTER: "removed all voters",
    ConfChangeFault.SEVERAL_VOTERS: "more than one voter changed without entering joint config",
}


def _words(directive: Directive) -> list[str]:
    return list(chain.from_iterable(line.split() for line in directive.input))


def _members(values: Sequence[str]) -> tuple[MemberId, ...]:
    return tuple(MemberId(int(value)) for value in values if value != "zero")


def _bars(members: Sequence[MemberId], acked: Mapping[MemberId, LogIndex]) -> str:
    """Draw for each member the number of members with a lower index."""
    width = len(members)
    if not members:
        return "<empty majority quorum>"
    lines = [" " * width + "    idx"]
    indexes = [acked.get(member, 0) for member in members]
    for member, index in zip(members, indexes, strict=True):
        ahead_of = sum(other < index for other in indexes)
        bar = f"{'x' * ahead_of}>".ljust(width + 1) if member in acked else "?".ljust(width + 1)
        lines.append(f"{bar} {index:>5}    (id={member})")
    return "\n".join(lines) + "\n"
