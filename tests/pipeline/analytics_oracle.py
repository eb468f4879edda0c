"""Compute the tables of an analysis in plain Python; instants are in ms."""

from collections import defaultdict
from datetime import UTC, datetime

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft.v1.task_pb2 import Task
from tests.pipeline.figure_oracle import figures_of, is_failure


def date_of(at_ms):
    return datetime.fromtimestamp(at_ms / 1_000, UTC).date()


def bucket(at_ms, seconds):
    return at_ms // 1_000 // seconds * seconds * 1_000


def state_of(number):
    return Task.State.Name(number).lower() if number else None


class Fact:
    """One event with the values that the tables need."""

    def __init__(self, event):
        self.event = event
        self.tube, self.task_id, self.seq = event.tube, event.task_id, event.seq
        self.at_ms = event.at_ms
        self.date = date_of(event.at_ms)
        self.kind = ChangeEvent.Kind.Name(event.kind).lower()
        self.before, self.after = state_of(event.from_state), state_of(event.to_state)
        self.has_left = self.before is not None and self.before != self.after
        self.spent = max(event.at_ms - event.since_ms, 0)


def facts(events):
    return [Fact(event) for event in events]


def grouped(facts, key):
    found = defaultdict(list)
    for fact in facts:
        found[key(fact)].append(fact)
    return found


def count(facts, kind):
    return sum(fact.kind == kind for fact in facts)


def task_days(all_facts, _targets):
    rows = set()
    keys = grouped(all_facts, lambda fact: (fact.date, fact.tube, fact.task_id))
    for (date, tube, task_id), some in keys.items():
        puts = [fact.at_ms for fact in some if fact.kind == "put"]
        takes = [fact.at_ms for fact in some if fact.kind == "take"]
        spent = [
            sum(fact.spent for fact in some if fact.has_left and fact.before == state)
            for state in ("ready", "taken", "delayed")
        ]
        ends = [fact for fact in some if fact.after is None]
        end = max(ends, key=lambda fact: fact.seq, default=None)
        changes = [fact for fact in some if fact.before != fact.after]
        last = max(changes, key=lambda fact: fact.seq)
        rows.add(
            (
                date, tube, task_id,
                min(puts, default=None), min(takes, default=None),
                len(takes), *spent,
                end.at_ms if end else None, end.kind if end else None,
                last.after, last.at_ms, last.event.session or None,
                max(fact.at_ms for fact in some),
            )
        )  # fmt: skip
    return rows


def throughput(all_facts, _targets):
    keys = grouped(all_facts, lambda one: (one.date, one.tube, one.kind, bucket(one.at_ms, 60)))
    return {(*key, len(some)) for key, some in keys.items()}


def durations(all_facts):
    """Return the durations by date, tube, phase and start of the 5 minutes."""
    found = defaultdict(list)
    for fact in all_facts:
        phase = None
        if fact.has_left and fact.before == "ready" and fact.kind == "take":
            phase = "wait"
        elif fact.has_left and fact.before == "taken":
            phase = "run"
        if phase:
            found[fact.date, fact.tube, phase, bucket(fact.at_ms, 300)].append(fact.spent)
    return found


def latencies(all_facts, _targets):
    return {
        (*key, len(ms), sum(ms), float(sum(one * one for one in ms)), max(ms))
        for key, ms in durations(all_facts).items()
    }


def outcomes(all_facts, targets):
    keys = grouped(all_facts, lambda fact: (fact.date, fact.tube, bucket(fact.at_ms, 3_600)))
    return {
        (
            *key, *figures_of([fact.event for fact in some]).values(),
            sum(fact.event.payload_bytes for fact in some if fact.kind == "put"),
            targets.of(key[1]),
        )
        for key, some in keys.items()
    }  # fmt: skip


def late_waits(all_facts, targets):
    late = [
        fact
        for fact in all_facts
        if fact.kind == "take" and fact.before == "ready" and fact.spent > targets.of(fact.tube)
    ]
    keys = grouped(
        late,
        lambda one: (one.date, one.tube, bucket(one.event.since_ms + targets.of(one.tube), 60)),
    )
    return {
        (*key, len(some), max(one.spent for one in some), max(one.at_ms for one in some))
        for key, some in keys.items()
    }


def failures(all_facts, _targets):
    failed = [fact for fact in all_facts if is_failure(fact.event)]
    keys = grouped(
        failed,
        lambda fact: (
            fact.date, fact.tube, fact.kind, fact.event.reason or None,
            fact.event.fingerprint or None,
        ),
    )  # fmt: skip
    return {
        (
            *key, len(some), min(fact.at_ms for fact in some),
            max(fact.at_ms for fact in some),
            max((fact.event.message for fact in some), default="") or None,
        )
        for key, some in keys.items()
    }  # fmt: skip


def subqueues(all_facts, _targets):
    takes = [fact for fact in all_facts if fact.kind == "take" and fact.event.subqueue]
    keys = grouped(
        takes, lambda one: (one.date, one.tube, bucket(one.at_ms, 3_600), one.event.subqueue)
    )
    return {
        (*key, len(some), sum(one.spent for one in some), max(one.spent for one in some))
        for key, some in keys.items()
    }


def workers(all_facts, _targets):
    ended = [fact for fact in all_facts if fact.has_left and fact.before == "taken"]
    keys = grouped(
        ended,
        lambda one: (one.date, one.tube, bucket(one.at_ms, 3_600), one.event.session or None),
    )
    return {
        (
            *key, len(some), sum(one.spent for one in some),
            sum(one.spent for one in some if is_failure(one.event)),
            sum(is_failure(one.event) for one in some), count(some, "ttr_expired"),
        )
        for key, some in keys.items()
    }  # fmt: skip


def depth_changes(all_facts, _targets):
    found = defaultdict(int)
    for fact in all_facts:
        if fact.before == fact.after:
            continue
        for state, change in ((fact.after, 1), (fact.before, -1)):
            if state is not None:
                found[fact.date, fact.tube, state, bucket(fact.at_ms, 60)] += change
    return {(*key, change) for key, change in found.items()}


ORACLE = {
    "task_days": task_days,
    "throughput": throughput,
    "latencies": latencies,
    "outcomes": outcomes,
    "late_waits": late_waits,
    "failures": failures,
    "subqueues": subqueues,
    "workers": workers,
    "depth_changes": depth_changes,
}
