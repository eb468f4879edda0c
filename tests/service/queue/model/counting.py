"""Counters of the naive queue, computed from the events of each tube."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.operations.leadership import NoteCalls, SetWallOffset

FINISHED = (State.DONE, State.ZOMBIE)


@dataclass
class Counts:
    """Counters of a tube; ``moves`` by old state, new state, and whether the tube changed."""

    kinds: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)
    expired: Counter = field(default_factory=Counter)
    moves: Counter = field(default_factory=Counter)
    finished: int = 0

    def shown(self):
        return (
            tuple(self.kinds[kind] for kind in (0, *EventKind)),
            tuple(self.calls[call] for call in CountedOperation),
            tuple(self.expired[state] for state in State),
            self.finished,
            {move: count for move, count in self.moves.items() if count},
        )


def shown(statistics):
    """Return a real queue's counters of a tube in the same form."""
    calls = statistics.calls
    moves = {
        (move.from_state, move.to_state, move.crossing): move.count
        for move in statistics.transitions
    }
    return (calls.by_kind, calls.noted, calls.expired, calls.finished, moves)


class NaiveCounting:
    """Counts events; tasks of a truncated tube are counted at once."""

    def count(self, task, kind, state):
        counts, before = task["tube"]["counts"], task["state"]
        if kind is EventKind.TRUNCATE:
            return
        counts.kinds[kind] += 1
        void = State.GONE in (before, state)
        counts.moves[before, state, void and task["crosses"]] += 1
        counts.expired[before] += kind is EventKind.TTL_EXPIRED
        ends = before not in FINISHED and state in (State.GONE, *FINISHED)
        counts.finished += ends and kind is not EventKind.MOVE

    def count_truncated(self, tube):
        for task in self.of(tube, *State):
            tube["counts"].kinds[EventKind.TRUNCATE] += 1
            tube["counts"].moves[task["state"], State.GONE, False] += 1

    def note(self, task, call):
        task["tube"]["counts"].calls[call] += 1

    def do_setwalloffset(self, command: SetWallOffset):
        changed = command.wall_offset_ms != self.wall_offset
        self.wall_offset = command.wall_offset_ms
        return CountResult(int(changed))

    def do_notecalls(self, command: NoteCalls):
        known = [(one, tube) for one in command.tubes if (tube := self.tube(one.tube))]
        for one, tube in known:
            calls = tube["counts"].calls
            calls[CountedOperation.TAKE_TIMEOUT] += one.take_timeouts
            calls[CountedOperation.PEEK] += one.peeks
            calls[CountedOperation.META] += one.metas
        return CountResult(len(known))
