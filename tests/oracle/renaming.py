"""Replace names of tubes that the contract does not allow, throughout a trace.

The oracle allows almost any text; the contract allows letters, digits, "_", "-", "." and ":". No
behaviour depends on the name of a tube, so a trace with another name states the same facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.oracle.trace import Json, Outcome, Step, Trace

ALLOWED: Final = re.compile(r"[A-Za-z0-9_.:-]{0,128}")
LISTED: Final = ("tubes", "snapshot", "statistics")
"""Operations whose results contain names of tubes."""


def allowed_name(name: Json) -> Json:
    """Return the name of a tube in the run of a trace; different names stay different."""
    if not isinstance(name, str) or ALLOWED.fullmatch(name):
        return name
    return "renamed." + name.encode().hex()[:100]


def renamed(trace: Trace) -> Trace:
    """Return a trace in which the contract allows all names of tubes."""
    return replace(trace, steps=tuple(_renamed_step(step) for step in trace.steps))


def _renamed_step(step: Step) -> Step:
    arguments = dict(step.arguments)
    if "tube" in arguments:
        arguments["tube"] = allowed_name(arguments["tube"])
    if isinstance(arguments.get("tubes"), list):
        arguments["tubes"] = [allowed_name(name) for name in arguments["tubes"]]
    outcome = step.outcome
    if step.operation in LISTED and "tube" not in arguments:
        outcome = replace(outcome, result=_renamed_result(outcome))
    return replace(step, arguments=arguments, outcome=outcome)


def _renamed_result(outcome: Outcome) -> Json:
    result = outcome.result
    if isinstance(result, list):
        return sorted(allowed_name(name) for name in result)
    if isinstance(result, Mapping) and isinstance(result.get("tubes"), Mapping):
        tubes = {allowed_name(name): body for name, body in result["tubes"].items()}
        return {**result, "tubes": tubes}
    if isinstance(result, Mapping):
        return {allowed_name(name): body for name, body in result.items()}
    return result
