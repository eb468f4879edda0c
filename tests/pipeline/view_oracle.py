"""Compute the views on incidents, capacity and cost in plain Python; instants are in ms."""

import statistics
from collections import Counter

from taskraft_pipeline.analytics.capacity import CapacityLoad
from taskraft_pipeline.analytics.capacity_views import NOISE
from taskraft_pipeline.analytics.incident_views import (
    ATTEMPTS_MIN,
    DEVIATIONS,
    GAP_SECONDS,
    SLOW,
)
from tests.pipeline import figure_oracle
from tests.pipeline.analytics_oracle import bucket, count, grouped

HOUR_S = 3_600


def open_tasks(facts, targets):
    now_ms = max(fact.at_ms for fact in facts)
    rows = set()
    for (tube, task_id), life in grouped(facts, lambda fact: (fact.tube, fact.task_id)).items():
        last = [fact for fact in life if fact.before != fact.after][-1]
        if last.after is not None:
            rows.add(
                (
                    tube, task_id, last.after, last.at_ms, last.event.session or None,
                    count(life, "take"), now_ms, now_ms - last.at_ms, targets.of(tube),
                )
            )  # fmt: skip
    return rows


def incidents(facts, targets):
    late = [
        (fact.tube, fact.event.since_ms + targets.of(fact.tube), fact.spent, fact.at_ms)
        for fact in facts
        if fact.kind == "take" and fact.before == "ready" and fact.spent > targets.of(fact.tube)
    ]
    late += [
        (tube, since_ms + target_ms, age_ms, now_ms)
        for tube, _, state, since_ms, _, _, now_ms, age_ms, target_ms in open_tasks(facts, targets)
        if state == "ready" and age_ms > target_ms
    ]
    found = []
    for tube, late_ms, wait_ms, end_ms in sorted(late):
        minute = bucket(late_ms, 60)
        if found and found[-1][0] == tube and minute - found[-1][-1] <= GAP_SECONDS * 1_000:
            _, since_ms, until_ms, tasks, wait_max_ms, _ = found.pop()
            until_ms, wait_max_ms = max(until_ms, end_ms), max(wait_max_ms, wait_ms)
            found.append((tube, since_ms, until_ms, tasks + 1, wait_max_ms, minute))
        else:
            found.append((tube, minute, end_ms, 1, wait_ms, minute))
    return {row[:-1] for row in found}


def attempts(facts):
    return [fact for fact in facts if fact.has_left and fact.before == "taken"]


def is_failure(fact):
    return figure_oracle.is_failure(fact.event)


def worker_outliers(facts, targets):
    del targets
    rows = set()
    for (date, tube), some in grouped(attempts(facts), lambda one: (one.date, one.tube)).items():
        for session, own in grouped(some, lambda fact: fact.event.session).items():
            others = [fact for fact in some if fact.event.session != session]
            if min(len(own), len(others)) < ATTEMPTS_MIN:
                continue
            rate = sum(map(is_failure, own)) / len(own)
            other_rate = (sum(map(is_failure, others)) + 1) / (len(others) + 2)
            run_ms = sum(one.spent for one in own) / len(own)
            other_run_ms = sum(one.spent for one in others) / len(others)
            score = (rate - other_rate) / (other_rate * (1 - other_rate) / len(own)) ** 0.5
            if score >= DEVIATIONS or run_ms >= SLOW * other_run_ms:
                problem = "failures" if score >= DEVIATIONS else "slow"
                rows.add(
                    (
                        date, tube, session, len(own), rate, other_rate, run_ms, other_run_ms,
                        score, problem,
                    )
                )  # fmt: skip
    return rows


def capacity(facts, targets):
    rows = set()
    days = grouped(facts, lambda fact: (fact.date, fact.tube))
    for (date, tube), day in days.items():
        ended = attempts(day)
        puts = [fact for fact in day if fact.kind == "put"]
        run_ms = sum(one.spent for one in ended) / len(ended)
        variance_ms = statistics.pvariance([one.spent for one in ended])
        run_variation = variance_ms / run_ms**2 if variance_ms / run_ms**2 >= NOISE else 0.0
        for hour, some in grouped(puts, lambda one: bucket(one.at_ms, HOUR_S)).items():
            minutes = Counter(bucket(one.at_ms, 60) for one in some)
            mean = len(some) / 60
            variance = sum(number**2 for number in minutes.values()) / 60 - mean**2
            per_s = len(some) * count(day, "take") / len(puts) / HOUR_S
            inside = [one for one in ended if bucket(one.at_ms, HOUR_S) == hour]
            load = CapacityLoad(per_s, run_ms / 1_000, variance / mean, run_variation)
            rows.add(
                (
                    date, tube, hour, len(some), per_s, run_ms, variance / mean, run_variation,
                    load.offered, len({one.event.session for one in inside if one.event.session}),
                    sum(one.spent for one in inside) / 3_600_000, targets.of(tube),
                    load.workers_for(targets.of(tube) / 1_000),
                )
            )  # fmt: skip
    return rows


def costs(facts, targets):
    del targets
    rows = set()
    for date, day in grouped(facts, lambda fact: fact.date).items():
        all_ms = sum(one.spent for one in attempts(day))
        for tube, some in grouped(day, lambda fact: fact.tube).items():
            ended = attempts(some)
            busy_ms = sum(one.spent for one in ended)
            failed_ms = sum(one.spent for one in ended if is_failure(one))
            put_bytes = sum(one.event.payload_bytes for one in some if one.kind == "put")
            acks = count(some, "ack")
            rows.add(
                (
                    date, tube, count(some, "put"), acks, put_bytes, busy_ms / 3_600_000,
                    failed_ms / 3_600_000, busy_ms / all_ms, busy_ms / acks,
                )
            )  # fmt: skip
    return rows


VIEW_ORACLE = {
    "open_tasks": open_tasks,
    "incidents": incidents,
    "worker_outliers": worker_outliers,
    "capacity": capacity,
    "costs": costs,
}
