"""A queue as naive as can be: a list of dictionaries that is searched for everything.

It says what the queue means, in the fewest words; the property tests compare the two. Nothing of
the queue's own code is used but its values.
"""

from __future__ import annotations

from service.queue.commands import (
    FOREVER_MS,
    ClusterSettings,
    Extras,
    OnConflict,
    Outcome,
    Position,
    Put,
    PutResult,
    Reason,
    State,
    Take,
    TakeResult,
    TaskUpdate,
    TaskView,
    TtlScope,
)
from service.queue.life_cycle import EventKind
from service.queue.tubes.counters import Call
from tests.service.queue.model.circulation import NaiveCirculation
from tests.service.queue.model.counting import FINISHED, NaiveCounting
from tests.service.queue.model.intervention import NaiveIntervention
from tests.service.queue.model.keys import NaiveKeys
from tests.service.queue.model.moving import NaiveMoving
from tests.service.queue.model.rates import NaiveRates
from tests.service.queue.model.retrying import NaiveRetrying
from tests.service.queue.model.sessions import NEVER, NaiveSessions, later, longer
from tests.service.queue.model.settling import NaiveSettling
from tests.service.queue.model.subqueues import PLAIN_KINDS, NaiveSubqueues
from tests.service.queue.model.tubes import NaiveTubes

REPLACE = OnConflict.REPLACE_IF_WAITING


class NaiveQueue(
    NaiveCounting,
    NaiveTubes,
    NaiveSessions,
    NaiveSettling,
    NaiveRetrying,
    NaiveMoving,
    NaiveRates,
    NaiveCirculation,
    NaiveSubqueues,
    NaiveIntervention,
    NaiveKeys,
):
    """The whole state in lists."""

    def __init__(self, limits):
        self.deadlines_max = limits.deadlines_per_entry_max
        self.removals_max = limits.removals_per_entry_max
        self.removals_beside = limits.removals_beside_max
        self.scan_max = limits.selector_scan_max
        self.now = self.index = self.token = self.numbers = self.session_numbers = 0
        self.claimed = []
        self.settings = ClusterSettings()
        self.tubes, self.sessions, self.tasks, self.ruins, self.events = [], [], [], [], []

    # ------------------------------------------------------------------------------------- reading

    def tube(self, name):
        return next((tube for tube in self.tubes if tube["name"] == name), None)

    def of(self, tube, *states):
        return [task for task in self.tasks if task["tube"] is tube and task["state"] in states]

    def find(self, tube, task_id):
        return next((task for task in self.of(tube, *State) if task["id"] == task_id), None)

    def holder(self, token):
        return next((task for task in self.tasks if task["token"] == token and token), None)

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
                result=task["result"],
                result_content_type=task["result_type"],
                outcome=task["outcome"],
                retain_until_ms=shown(task["retain_until"]),
                progress=task["progress"],
                retry=task["retry"],
                cancel_requested=task["cancelled"],
                unique_key=task["key"],
                origin=task["origin"],
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
        """Tell whether the end of the time to live ends a task in its state."""
        ends = {
            TtlScope.UNTAKEN: (State.READY, State.BURIED),
            TtlScope.READY_ONLY: (State.READY,),
            TtlScope.ALL: (State.READY, State.DELAYED, State.TAKEN, State.BURIED),
        }
        return task["state"] in ends[task["tube"]["view"].options.ttl_scope]

    # ------------------------------------------------------------------------------------ changing

    def move(self, task, kind, state, reason=""):
        session = task["session"]
        label = (session["name"] or session["id"][:8]) if session else ""
        outcome = None
        if task["cancelled"] and state in (State.READY, State.DELAYED):
            state, outcome = State.GONE, Outcome.DELETED
        self.event(task, kind, state, label, reason, outcome)
        if task["state"] is State.TAKEN and state is not State.TAKEN:
            task.update(token=0, lease_until=NEVER, session=None, cancelled=False)
        if state is not State.DELAYED:
            task["visible_at"] = NEVER
        task.update(state=state, since=self.now)
        if state is State.GONE:
            self.tasks.remove(task)
            self.key_lost(task)
        self.settle_turns(task["tube"])

    def event(self, task, kind, state, label, reason, outcome=None):
        if outcome is None:
            outcome = self.outcome(task, kind, state, reason)
        self.count(task, kind, state)
        self.events.append(
            (
                self.index,
                self.now,
                task["tube"]["name"],
                task["id"],
                kind,
                task["state"],
                state,
                task["attempt"],
                task["priority"],
                task["created"],
                task["since"],
                label,
                reason,
                task["type"],
                outcome,
            )
        )

    def outcome(self, task, kind, state, reason):
        """Tell how a task ends by an event, or that it is buried."""
        if state is State.BURIED:
            return Outcome.NONE if kind is EventKind.UPDATE else Outcome.BURIED_OUT
        if task["state"] in FINISHED or state not in (State.GONE, *FINISHED):
            return Outcome.NONE
        outcomes = {
            EventKind.ACK: Outcome.PROCESSED,
            EventKind.SWITCH: Outcome.PROCESSED,
            EventKind.TTL_EXPIRED: Outcome.EXPIRED,
            EventKind.TRUNCATE: Outcome.DELETED,
            EventKind.DELETE: Outcome.DELETED,
            EventKind.MOVE: Outcome.NONE,
        }
        return Outcome.FAILED if reason == "BURIED_MAX" else outcomes.get(kind, Outcome.FAILED)

    def apply(self, index, now, commands):
        self.index, self.now = index, now
        fired = 0
        while fired < self.deadlines_max:
            due = [line for line in self.deadlines() if line[0] <= now]
            if not due:
                break
            _, kind, _, _, subject = due[0]
            fired += 1
            if kind == 1:
                self.move(subject, EventKind.DELAY_DUE, State.READY)
            elif kind == 2:
                text = "the time to run was over"
                self.lose(subject, EventKind.TTR_EXPIRED, "LEASE_EXPIRED", text)
            elif kind == 3:
                self.move(subject, EventKind.TTL_EXPIRED, State.GONE)
            elif kind == 4:
                self.move(subject, EventKind.RETENTION_EXPIRED, State.GONE)
            elif kind == 6:
                fired += self.refill(subject)
            else:
                fired += self.end(subject)
        spare = self.remove_surplus(self.removals_max)
        results = []
        for command in commands:
            results.append(getattr(self, "do_" + type(command).__name__.lower())(command))
            spare = self.remove_surplus(spare)
        room = self.removals_beside if commands else self.removals_max
        while room and self.ruins:
            task = self.ruins.pop(0)
            room -= 1
            live = task["session"] in self.sessions
            label = (task["session"]["name"] or task["session"]["id"][:8]) if live else ""
            self.event(task, EventKind.TRUNCATE, State.GONE, label, "")
        return results

    # --------------------------------------------------------------------------------- put and take

    def do_put(self, command: Put):  # noqa: C901, PLR0912 - all of a put in one place
        tube = self.tube(command.tube)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        refused, accepted, ids, met, planned = [], [], [], [], {}
        first, grown = tube["next"], 0
        tasks = [self.suitable(tube, new) for new in command.tasks]
        for item, new in enumerate(tasks):
            wrong = self.unfit_new(tube, new)
            meets = None if wrong else self.meet(tube, new, planned)
            if isinstance(meets, Reason):
                wrong = meets
            elif meets and new.on_conflict is REPLACE:
                before = (
                    accepted[meets - first].body
                    if meets >= first
                    else self.find(tube, meets)["body"]
                )
                more = len(new.body) - len(before)
                size = sum(len(one.body) for one in accepted) + grown + more
                wrong = self.too_big(tube, size, more)
                if not wrong and meets < first:
                    grown += more
            elif not meets and self.no_room(
                tube, [*map(self.sized, accepted), self.sized(new)], grown
            ):
                wrong = wrong or Reason.TUBE_FULL
            ids.append(0 if wrong else meets or tube["next"] + len(accepted))
            if wrong:
                refused.append((item, wrong))
                continue
            planned[new.unique_key] = ids[-1]
            if not meets:
                accepted.append(new)
                continue
            met.append((item, new))
            if meets >= tube["next"] and new.on_conflict is REPLACE:
                accepted[meets - tube["next"]] = new
        if refused and command.atomic:
            return refused[0][1]
        for new in accepted:
            self.put(tube, new)
        for item, new in met:
            if ids[item] < first:
                self.settle_conflict(self.find(tube, ids[item]), new)
        return PutResult(ids, refused, [item for item, _ in met])

    def unfit_new(self, tube, new):
        """Return why a new task is not for a tube, whatever else is there."""
        wishes = (new.priority, new.delay_ms, new.ttl_ms, new.ttr_ms, new.visible_at_ms)
        if tube["view"].kind in PLAIN_KINDS and any(wish is not None for wish in wishes):
            return Reason.INVALID_FIELD
        if new.subqueue and not self.has_subqueues(tube):
            return Reason.INVALID_FIELD
        wrong = self.unfit_update(tube, TaskUpdate(priority=new.priority))
        return wrong or self.unfit_retry(tube, new.retry)

    def sized(self, new):
        return {"body": new.body}

    def terms(self, tube, new):
        """Return the delay of a new task, and what applies to it."""
        options = tube["view"].options
        priority = options.priority if new.priority is None else new.priority
        delay = options.delay_ms if new.delay_ms is None else new.delay_ms
        delay = max(delay, (new.visible_at_ms or 0) - self.now)
        ttl = longer(options.ttl_ms if new.ttl_ms is None else new.ttl_ms, max(delay, 0))
        lane = 0
        if delay <= 0 and new.position is not Position.IN_ORDER:
            lane = self.lane(tube, new.position)
        return delay, {
            "lane": lane,
            "priority": priority,
            "rank": ~priority if options.higher_first else priority,
            "body": new.body,
            "type": new.type,
            "subqueue": new.subqueue,
            "ttl": ttl,
            "ttr": options.ttr_ms if new.ttr_ms is None else new.ttr_ms,
            "expire_at": later(self.now, ttl),
            "retry": new.retry,
        }

    def put(self, tube, new):
        delay, terms = self.terms(tube, new)
        task = {
            "tube": tube,
            "id": tube["next"],
            "key": new.unique_key,
            "origin": None,
            "state": State.GONE,
            "created": self.now,
            "since": self.now,
            "visible_at": NEVER,
            "lease_until": NEVER,
            "token": 0,
            "session": None,
            "attempt": 0,
            "failure": None,
            "retain_until": NEVER,
            "result": None,
            "result_type": "",
            "outcome": Outcome.NONE,
            "progress": None,
            "times_buried": 0,
            "cancelled": False,
            "crosses": False,
            **terms,
        }
        tube["next"] += 1
        self.tasks.append(task)
        if new.unique_key:
            tube["keys"][new.unique_key] = task["id"]
        if new.position is Position.FRONT:
            self.note(task, Call.URGENT)
        self.move(task, EventKind.PUT, State.DELAYED if delay > 0 else State.READY)
        if delay > 0:
            task["visible_at"] = later(self.now, delay)
        return task["id"]

    def lane(self, tube, position):
        if position is Position.FRONT:
            tube["front"] -= 1
            return tube["front"]
        tube["back"] += 1
        return tube["back"]

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

    def choose(self, tubes, command):  # noqa: C901 - as long as the rules are
        """Return what a take gets; in a sub-queue, a task that is passed by bars those behind."""
        chosen, passed, room = [], [], command.bytes_max
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
                    (key, task)
                    for key, task in self.offers(tube)
                    if not any(task is other for other in passed)
                ]
                if offers:
                    _, task = min(offers, key=lambda offer: offer[0])
                    urgency = (task["lane"], task["rank"], task["created"], place)
                    firsts.append(((passes[place], place) if weights else urgency, task))
            if not firsts:
                break
            _, task = min(firsts, key=lambda first: first[0])
            bound = command.priority_bound
            if bound is not None and task["tube"]["view"].options.higher_first:
                bound = ~bound
            if (command.types and task["type"] not in command.types) or (
                bound is not None and task["rank"] > bound
            ):
                passed.append(task)
                continue
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

    def take_chosen(self, tube, session, command):
        if not self.takeable(tube):
            return TakeResult([])
        task = self.find(tube, command.task_id)
        if not task:
            return Reason.TASK_NOT_FOUND
        if task["state"] in (State.TAKEN, State.DONE, State.ZOMBIE):
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
        self.event(task, EventKind.TAKE, State.TAKEN, label, "")
        self.token += 1
        until = later(self.now, ttr)
        if task["tube"]["view"].options.ttl_scope is TtlScope.UNTAKEN:
            until = min(until, task["expire_at"])
        task.update(state=State.TAKEN, since=self.now, visible_at=NEVER)
        task.update(token=self.token, session=session, lease_until=until)
        self.settle_turns(task["tube"])
        return self.view(task)
