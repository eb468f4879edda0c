"""Sub-queues of the naive queue: takeable tasks are found by a search of all tasks."""

from __future__ import annotations

from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.orders.subqueue_offers import STRIDE

PLAIN_KINDS = (TubeKind.FIFO, TubeKind.UTUBE)
"""Kinds whose tasks have no priority, delay, TTL and TTR."""


class NaiveSubqueues:
    """The takeable tasks of a tube, and the turns of its sub-queues."""

    def has_subqueues(self, tube):
        return tube["view"].kind in {TubeKind.UTUBE, TubeKind.UTUBETTL}

    def taken_of(self, tube, subqueue):
        taken = self.of(tube, State.TAKEN) + [task for task in self.claimed if task["tube"] is tube]
        return sum(task["subqueue"] == subqueue for task in taken)

    def may_give(self, tube, subqueue):
        options = tube["view"].options
        return not self.has_subqueues(tube) or (
            self.taken_of(tube, subqueue) < options.subqueue_concurrency
        )

    def offers(self, tube):
        """Return the tasks that could be taken, each with its sort key."""
        ready = [task for task in self.of(tube, State.READY) if not self.is_claimed(task)]
        place = {task["id"]: (task["lane"], task["rank"], task["id"]) for task in ready}
        if not self.has_subqueues(tube):
            return [(place[task["id"]], task) for task in ready]
        firsts = {}
        for task in sorted(ready, key=lambda task: place[task["id"]]):
            if self.may_give(tube, task["subqueue"]) and self.allows(tube, task["subqueue"]):
                firsts.setdefault(task["subqueue"], task)
        if not tube["view"].options.subqueue_weights:
            return [(place[task["id"]], task) for task in firsts.values()]
        return [
            ((tube["turns"].get(name, 0), *place[task["id"]][1:]), task)
            for name, task in firsts.items()
        ]

    def is_claimed(self, task):
        return any(task is other for other in self.claimed)

    def claim(self, task):
        """Let a task count as taken before it is leased."""
        tube = task["tube"]
        is_first = any(task is other for _, other in self.offers(tube))
        self.claimed.append(task)
        self.use_subqueue_rate(task)
        if is_first and task["subqueue"] in tube["turns"]:
            tube["time"] = max(tube["time"], tube["turns"].pop(task["subqueue"]))
        self.settle_turns(tube)

    def settle_turns(self, tube):
        """Give turns to sub-queues that begin to offer a task, and remove the other turns."""
        weights = dict(tube["view"].options.subqueue_weights)
        if not weights:
            return
        offering = {task["subqueue"] for _, task in self.offers(tube)}
        turns = tube["turns"]
        for name in set(turns) - offering:
            del turns[name]
        for name in offering:
            turns.setdefault(name, tube["time"] + STRIDE // weights.get(name, 1))
