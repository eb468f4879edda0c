"""The naive queue: a list of dictionaries that is searched for everything.

The naive queue defines the behaviour of the queue as simply as possible; the property tests compare
both. The naive queue uses no code of the real queue except value classes.
"""

from __future__ import annotations

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import Extras, TaskView
from taskraft_service.queue.entities.tube_options import TtlScope
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.state.cluster_version import ClusterVersionState
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from tests.service.queue.model.admin import NaiveAdmin
from tests.service.queue.model.batches import NaiveBatches
from tests.service.queue.model.bulk_sweeps import NaiveBulkSweeps
from tests.service.queue.model.counting import FINISHED, NaiveCounting
from tests.service.queue.model.dependencies import NaiveDependencies
from tests.service.queue.model.drivers import NaiveDrivers
from tests.service.queue.model.feed import PARTITIONS, NaiveFeed
from tests.service.queue.model.groups import NaiveGroups
from tests.service.queue.model.keys import NaiveKeys
from tests.service.queue.model.kick_bury_delete import NaiveKickBuryDelete
from tests.service.queue.model.management import NaiveManagement
from tests.service.queue.model.moving import NaiveMoving
from tests.service.queue.model.putting import NaivePutting
from tests.service.queue.model.rates import NaiveRates
from tests.service.queue.model.retrying import NO_CAUSE, NaiveRetrying
from tests.service.queue.model.schedules import NaiveSchedules
from tests.service.queue.model.sessions import NEVER, NaiveSessions, later
from tests.service.queue.model.settling import NaiveSettling
from tests.service.queue.model.subqueues import NaiveSubqueues
from tests.service.queue.model.tubes import NaiveTubes


class NaiveQueue(
    NaiveCounting,
    NaivePutting,
    NaiveTubes,
    NaiveSessions,
    NaiveSettling,
    NaiveRetrying,
    NaiveMoving,
    NaiveRates,
    NaiveKickBuryDelete,
    NaiveSubqueues,
    NaiveAdmin,
    NaiveKeys,
    NaiveGroups,
    NaiveDependencies,
    NaiveSchedules,
    NaiveBatches,
    NaiveDrivers,
    NaiveManagement,
    NaiveBulkSweeps,
    NaiveFeed,
):
    """The whole state in lists."""

    def __init__(self, limits, new_task=None, drivers=None):
        self.limits, self.new_task, self.drivers = limits, new_task, drivers or {}
        self.scan_max = limits.selector_scan_max
        self.now = self.index = self.token = self.numbers = self.session_numbers = 0
        self.wall_offset = self.stamped = 0
        self.claimed = []
        self.settings = ReplicatedSettings()
        self.tubes, self.sessions, self.tasks, self.ruins, self.events = [], [], [], [], []
        self.groups, self.group_numbers, self.schedules, self.ends = [], 0, [], []
        self.owes_room = False
        self.steps, self.returns = 0, []
        self.acts, self.act_numbers, self.cluster = {}, 0, ClusterVersionState()
        self.sweeps, self.sweep_numbers = [], 0
        self.partitions, self.low, self.consumers = [], [0] * PARTITIONS, {}

    # ------------------------------------------------------------------------------------- reading

    def tube(self, name):
        return next((tube for tube in self.tubes if tube["name"] == name), None)

    def of(self, tube, *states):
        return [task for task in self.tasks if task["tube"] is tube and task["state"] in states]

    def find(self, tube, task_id):
        return next((task for task in self.of(tube, *State) if task["id"] == task_id), None)

    def holder(self, token):
        return next((task for task in self.tasks if task["token"] == token and token), None)

    def is_strange(self, token, principal):
        """Return whether a token is no lease that the principal may use."""
        task = self.holder(token)
        if task is None:
            return True
        session = task["session"]
        return (session["owner"] if session else task["taker"] or principal) != principal

    def view(self, task):
        def shown(instant):
            return 0 if instant >= NEVER else instant

        def span(duration):
            return 0 if duration >= FOREVER_MS else duration

        return TaskView(
            task["tube"]["name"],
            task["id"],
            task["body"],
            task["state"],
            task["token"],
            shown(task["lease_until"]),
            task["attempt"],
            task["created"],
            task["since"],
            shown(task["visible_at"]),
            shown(task["expire_at"]),
            task["session"]["id"] if task["session"] else "",
            task["priority"],
            span(task["ttr"]),
            span(task["ttl"]),
            Extras(
                failure=task["failure"],
                times_buried=task["times_buried"],
                failures=tuple(task["failures"]),
                failed_attempts=task["failed"],
                result=task["result"],
                result_content_type=task["result_type"],
                outcome=task["outcome"],
                retain_until_ms=shown(task["retain_until"]),
                progress=task["progress"],
                retry=task["retry"],
                cancel_requested=task["cancelled"],
                unique_key=task["key"],
                origin=task["origin"],
                group=task["group"]["name"] if task["group"] else "",
                waiting=self.waiting_view(task),
                lease_ms=task["lease_ms"],
            ),
        )

    def deadlines(self):
        found = [(s["expires"], 5, 0, s["number"], s) for s in self.sessions]
        found += [(due, 6, t["number"], 0, t) for t in self.tubes if (due := self.rate_due(t))]
        for task in self.tasks:
            due, kind = {
                State.DELAYED: (task["visible_at"], 1),
                State.TAKEN: (task["lease_until"], 2),
                State.DONE: (task["retain_until"], 4),
                State.ZOMBIE: (task["retain_until"], 4),
            }.get(task["state"], (NEVER, 3))
            if self.dies(task) and task["expire_at"] <= due:
                due, kind = task["expire_at"], 3
            found.append((due, kind, task["tube"]["number"], task["id"], task))
        return sorted((line for line in found if line[0] < NEVER), key=lambda line: line[:4])

    def dies(self, task):
        """Return whether the end of the TTL ends a task in its state."""
        ends = {
            TtlScope.UNTAKEN: (State.READY, State.BURIED),
            TtlScope.READY_ONLY: (State.READY,),
            TtlScope.ALL: (State.READY, State.DELAYED, State.TAKEN, State.BURIED, State.HELD),
        }
        return task["state"] in ends[task["tube"]["view"].options.ttl_scope]

    # ------------------------------------------------------------------------------------ changing

    def move(self, task, kind, state, cause=NO_CAUSE):
        session = task["session"]
        label = (session["name"] or session["id"][:8]) if session else ""
        outcome = None
        if task["cancelled"] and state in (State.READY, State.DELAYED):
            state, outcome = State.GONE, TaskOutcome.DELETED
        self.event(task, kind, state, label, cause, outcome)
        if task["state"] is State.TAKEN and state is not State.TAKEN:
            task.update(token=0, lease_until=NEVER, session=None, cancelled=False, taker="")
            task["lease_ms"] = 0
        if state not in (State.DELAYED, State.HELD):
            task["visible_at"] = NEVER
        task.update(state=state, since=self.now)
        if state is State.READY:
            self.line_up(task)
        if state is State.GONE:
            self.remove(task)
            self.key_lost(task)
        self.settle_turns(task["tube"])

    def remove(self, task):
        self.tasks = [other for other in self.tasks if other is not task]

    def event(self, task, kind, state, label, cause=NO_CAUSE, outcome=None):
        if outcome is None:
            outcome = self.outcome(task, kind, state, cause)
        self.count(task, kind, state)
        self.note_end(task, outcome)
        if state is State.GONE:
            self.leave_group(task, kind, outcome)
        ahead = self.stamped - self.now
        self.partitions.append(self.partition_of(task))
        self.events.append(
            (
                self.index,
                self.stamped,
                task["tube"]["name"],
                task["id"],
                kind,
                task["state"],
                state,
                task["attempt"],
                task["priority"],
                task["created"] + ahead,
                task["since"] + ahead,
                label,
                *cause,
                task["type"],
                outcome,
            )
        )

    @property
    def wall(self):
        return self.now + self.wall_offset

    def outcome(self, task, kind, state, cause):
        """Return the outcome of a task whose state an event ends or buries."""
        if state is State.BURIED:
            return TaskOutcome.NONE if kind is EventKind.UPDATE else TaskOutcome.BURIED_OUT
        if task["state"] in FINISHED or state not in (State.GONE, *FINISHED):
            return TaskOutcome.NONE
        outcomes = {
            EventKind.ACK: TaskOutcome.PROCESSED,
            EventKind.SWITCH: TaskOutcome.PROCESSED,
            EventKind.TTL_EXPIRED: TaskOutcome.EXPIRED,
            EventKind.TRUNCATE: TaskOutcome.DELETED,
            EventKind.DELETE: TaskOutcome.DELETED,
            EventKind.MOVE: TaskOutcome.NONE,
            EventKind.DEPENDENCY_FAILED: TaskOutcome.DEPENDENCY_FAILED,
        }
        is_surplus = cause[0] == "BURIED_MAX"
        return TaskOutcome.FAILED if is_surplus else outcomes.get(kind, TaskOutcome.FAILED)

    def apply(self, index, now, commands):
        self.index, self.now = index, now
        self.stamped = max(self.stamped, now + self.wall_offset)
        most = self.limits.steps_beside_max if commands else self.limits.steps_alone_max
        self.steps, events = most, len(self.events)
        self.fire_due()
        self.remove_surplus(self.steps)
        self.settle_dependents(self.steps)
        self.settle_groups()
        results = []
        for command in commands:
            results.append(self.execute(command))
            self.remove_surplus(self.steps)
            self.settle_dependents(self.steps)
            self.settle_groups()
        made = len(self.events) - events - (most - self.steps)
        more = min(made, self.limits.steps_max) - most
        if more > 0:
            self.steps += more
            self.fire_due()
        most = max(most, most + more)
        self.remove_surplus(self.room(most))
        self.clear_away(self.room(most))
        self.continue_returns(self.room(most))
        self.settle_groups()
        self.sweep_groups(self.room(most))
        self.settle_dependents(self.room(most))
        self.forget_groups()
        self.forget_acts()
        return results

    def fire_due(self):
        while self.steps > 0:
            due = [line for line in self.deadlines() if line[0] <= self.now]
            if not due:
                break
            _, kind, _, _, subject = due[0]
            self.steps -= 1
            if kind == 1:
                self.move(subject, EventKind.DELAY_DUE, State.READY)
            elif kind == 2:
                text = "the time to run was over"
                work = self.return_of(subject)
                if work:
                    self.return_lease(subject, work)
                else:
                    self.lose(subject, EventKind.TTR_EXPIRED, "LEASE_EXPIRED", text)
            elif kind == 3:
                self.move(subject, EventKind.TTL_EXPIRED, State.GONE)
            elif kind == 4:
                self.move(subject, EventKind.RETENTION_EXPIRED, State.GONE)
            elif kind == 6:
                self.steps -= self.refill(subject)
            else:
                self.end(subject)

    def clear_away(self, room):
        for _ in range(min(room, len(self.ruins))):
            task = self.ruins.pop(0)
            self.steps -= 1
            live = task["session"] in self.sessions or self.returns_of(task["session"])
            label = (task["session"]["name"] or task["session"]["id"][:8]) if live else ""
            self.event(task, EventKind.TRUNCATE, State.GONE, label)

    def room(self, most):
        return max(self.steps, most // 8, 1)

    def execute(self, command):
        return getattr(self, "do_" + type(command).__name__.lower())(command)

    # ---------------------------------------------------------------------------------------- take

    def do_take(self, command: Take):
        tubes = [tube for name in command.tubes if (tube := self.tube(name))]
        if not tubes:
            return Reason.TUBE_NOT_FOUND
        session = self.session(command.session_id)
        if command.session_id and not session:
            return Reason.SESSION_NOT_FOUND
        if command.task_id is not None:
            return self.take_chosen(tubes[0], session, command)
        chosen = self.choose(tubes, command)
        return TakeResult([self.lease(task, session, command) for task in chosen])

    def choose(self, tubes, command):
        """Return the tasks of a take."""
        chosen, room = [], command.bytes_max
        tubes = [tube for tube in tubes if self.takeable(tube)]
        takeable = [self.takeable(tube) for tube in tubes]
        weights = self.weights(tubes, command)
        passes = self.passes(tubes) if weights else []
        while len(chosen) < command.tasks_max:
            firsts = []
            for place, tube in enumerate(tubes):
                if sum(task["tube"] is tube for task in chosen) >= takeable[place]:
                    continue
                offers = [
                    (key, task) for key, task in self.offers(tube) if self.suits(command, task)
                ]
                if offers:
                    _, task = min(offers, key=lambda offer: offer[0])
                    urgency = (task["lane"], task["rank"], task["created"], place)
                    firsts.append(((passes[place], place) if weights else urgency, task))
            if not firsts:
                break
            _, task = min(firsts, key=lambda first: first[0])
            if task["expire_at"] <= self.now:
                self.move(task, EventKind.TTL_EXPIRED, State.GONE)
                continue
            if len(task["body"]) > room and chosen:
                break
            room -= len(task["body"])
            self.claim(task)
            chosen.append(task)
            if weights:
                place = tubes.index(task["tube"])
                passes[place] += 10**6 // weights[place]
                task["tube"]["share"] = passes[place]
        return chosen

    def suits(self, command, task):
        """Return whether a take matches a task; a skipped task blocks its sub-queue."""
        bound = command.priority_bound
        if bound is not None and task["tube"]["view"].options.higher_first:
            bound = ~bound
        is_urgent = bound is None or self.urgency(task) <= bound
        return is_urgent and (not command.types or task["type"] in command.types)

    def urgency(self, task):
        higher = task["tube"]["view"].options.higher_first
        return ~task["priority"] if higher else task["priority"]

    def take_chosen(self, tube, session, command):
        if not self.takeable(tube):
            return TakeResult([])
        task = self.find(tube, command.task_id)
        if not task:
            return Reason.TASK_NOT_FOUND
        if task["state"] in (State.TAKEN, State.DONE, State.ZOMBIE, State.HELD):
            return Reason.WRONG_STATE
        if self.dies(task) and task["expire_at"] <= self.now:
            self.move(task, EventKind.TTL_EXPIRED, State.GONE)
            return Reason.TASK_NOT_FOUND
        if not self.may_give(tube, task["subqueue"]):
            return Reason.WRONG_STATE
        if not self.allows(tube, task["subqueue"]):
            return TakeResult([])
        self.use_subqueue_rate(task)
        return TakeResult([self.lease(task, session, command)])

    def lease(self, task, session, command):
        self.use_rate(task["tube"])
        ttr = task["ttr"] if command.ttr_ms is None else command.ttr_ms
        if not session and ttr >= FOREVER_MS:
            ttr = 60_000
        self.claimed = [other for other in self.claimed if other is not task]
        task["attempt"] += 1
        label = (session["name"] or session["id"][:8]) if session else ""
        self.event(task, EventKind.TAKE, State.TAKEN, label)
        self.token += 1
        until = later(self.now, ttr)
        if task["tube"]["view"].options.ttl_scope is TtlScope.UNTAKEN:
            until = min(until, task["expire_at"])
        task.update(state=State.TAKEN, since=self.now, visible_at=NEVER)
        if command.ttr_ms is not None and command.ttr_ms < FOREVER_MS <= task["ttr"]:
            task["lease_ms"] = command.ttr_ms
        taker = "" if session else command.taker
        task.update(token=self.token, session=session, taker=taker, lease_until=until)
        self.settle_turns(task["tube"])
        return self.view(task)
