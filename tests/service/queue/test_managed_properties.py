"""Audited acts, bulk sweeps, feed cursors, trims and versions equal the naive queue."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from taskraft_service.queue.operations.registry import (
    DEFINITIONS,
    LoggedCommand,
    ManagedCommand,
)
from tests.service.queue.random_combinations import common_composed_command, composed_command
from tests.service.queue.random_commands import PASSED, any_command, common_command
from tests.service.queue.random_management import aimed_at_sweeps, management_command
from tests.service.queue.targeting import targeted
from tests.service.queue.test_queue_properties import (
    ENTRIES_MIN,
    INTERRUPTIONS,
    LIMITS,
    QueueMachine,
    entries,
    run_part,
)

NOT_DRAWN: dict[type, str] = {}
"""Commands that no property test compares with the naive queue, each with the reason."""


class ManagedMachine(QueueMachine):
    """A queue machine with management commands, and with limits that few commands reach."""

    limits = replace(
        LIMITS,
        audit_records_max=6,
        audit_retention_ms=40,
        bulk_sweeps_open_max=4,
        bulk_sweeps_running_max=2,
        bulk_sweeps_kept_max=2,
        bulk_retention_ms=50,
        consumers_max=2,
        feed_chunk_rows_max=3,
    )
    commands = entries(common_command(), st.one_of(any_command(), *[management_command()] * 3))

    @rule(data=st.data(), passed=PASSED, then=st.just("collect") | INTERRUPTIONS)
    def entry(self, data, passed, then):
        commands = targeted(self.model, data.draw(self.commands))
        self.apply(passed, [aimed_at_sweeps(self.model, command) for command in commands])
        if then:
            getattr(self, then)()

    @invariant()
    def acts_are_equal(self):
        expected = sorted(self.model.acts.items(), reverse=True)
        found = list(self.queue.audit_records(self.model.act_numbers + 1))
        assert [(number, listed(act)) for number, act in found] == [
            (number, listed(act)) for number, act in expected
        ]

    @invariant()
    def sweeps_are_equal(self):
        model, queue = self.model, self.queue
        assert [sweep_view(sweep) for sweep in queue.bulk_sweeps()] == [
            model.sweep_view(sweep) for sweep in model.sweeps[::-1]
        ]
        assert list(queue.open_bulk_sweeps) == [one["number"] for one in model.open_sweeps()]

    @invariant()
    def consumers_and_versions_are_equal(self):
        assert self.queue.consumers() == list(self.model.kept_consumers().values())
        assert self.queue.cluster == self.model.cluster


def listed(record):
    """Return a record with its names as a list; a stored record has another sequence type."""
    return replace(record, act=replace(record.act, names=list(record.act.names)))


def sweep_view(sweep):
    """Return the fields of a sweep of the naive queue that callers see."""
    names = ("number", "state", "changed", "position", "steps", "position_max")
    names += ("started_ms", "ended_ms", "refused", "reasons")
    request = replace(sweep.request, ids=tuple(sweep.request.ids))
    problem = sweep.problem.split(":")[0]
    return {name: getattr(sweep, name) for name in names} | {"request": request, "problem": problem}


@pytest.mark.parametrize("part", range(6))
def test_management_behaves_like_the_naive_queue(part):
    assert run_part(ManagedMachine, part) >= ENTRIES_MIN


def drawn_types(strategy):
    """Return the types of the commands that a strategy draws."""
    seen = set()

    @settings(
        max_examples=600,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(command):
        seen.add(type(command))

    draw()
    return seen


def test_every_command_of_the_registry_is_drawn():
    strategies = (
        common_command(),
        any_command(),
        common_composed_command(),
        composed_command(),
        management_command(),
    )
    drawn = set().union(*map(drawn_types, strategies))
    assert drawn == {*DEFINITIONS, ManagedCommand} - NOT_DRAWN.keys()
    assert {ManagedCommand} <= set(get_args(LoggedCommand))
