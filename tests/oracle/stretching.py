"""Stretch the times of a timed trace, for a machine that is too busy for its pace.

Every duration grows by the same factor. All deadlines therefore keep their positions between the
bursts of steps, and the answers stay the same at any pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.oracle.trace import Json, Step, Trace

DURATIONS: Final = frozenset(
    {
        "ttl", "ttr", "delay", "timeout", "increment",
        "beat", "slack", "until", "seconds", "max_wait", "down",
    }
)  # fmt: skip
"""Arguments, options, and fields of tasks in snapshots whose unit is seconds."""
NESTED: Final = frozenset({"options", "config"})


def stretched(trace: Trace, factor: int) -> Trace:
    """Return a trace in which every duration is ``factor`` times as long."""
    if factor == 1:
        return trace
    steps = tuple(_stretched_step(step, factor) for step in trace.steps)
    return replace(trace, config=_longer(trace.config, factor), steps=steps)


def _stretched_step(step: Step, factor: int) -> Step:
    arguments = dict(_longer(step.arguments, factor))
    for name in NESTED & arguments.keys():
        arguments[name] = _longer(arguments[name], factor)
    step = replace(step, arguments=arguments)
    if step.operation != "snapshot" or not isinstance(step.outcome.result, Mapping):
        return step
    tubes = {
        name: {**tube, "tasks": [_longer(task, factor) for task in tube["tasks"]]}
        for name, tube in step.outcome.result["tubes"].items()
    }
    result = {**step.outcome.result, "tubes": tubes}
    return replace(step, outcome=replace(step.outcome, result=result))


def _longer(fields: Json, factor: int) -> Json:
    """Return named values with multiplied durations."""
    if not isinstance(fields, Mapping):
        return fields
    return {
        name: value * factor if name in DURATIONS and _is_number(value) else value
        for name, value in fields.items()
    }


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
