"""Decide whether a run passes, from the outcomes of its stages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.gate.outcomes import Outcome

UNSTABLE_MAX = 3
"""Maximum number of unstable tests in a run that passes."""
SLOWEST_SHOWN = 10
FILES_SHOWN = 40


@dataclass(frozen=True)
class Verdict:
    """The result of a run."""

    passed: bool
    unstable: tuple[Outcome, ...]
    """First outcomes of the tests that failed, and passed when they ran again, alone."""
    wrong: tuple[Outcome, ...]
    """Tests of stage 1 that failed, and tests of stage 2 that failed twice."""


def judge(first: Sequence[Outcome], second: Sequence[Outcome], again: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a run.

    Args:
        first: outcomes of stage 1, whose tests run once.
        second: outcomes of stage 2.
        again: outcomes of the failed tests of stage 2, which ran again, alone.
    """
    passed_again = {each.test for each in again if not (each.failed or each.skipped)}
    late = [each for each in second if each.failed and each.test in passed_again]
    wrong = [each for each in first if each.failed]
    wrong += [each for each in second if each.failed and each.test not in passed_again]
    return Verdict(not wrong and len(late) <= UNSTABLE_MAX, tuple(late), tuple(wrong))


def summary(verdict: Verdict, stages: Sequence[tuple[str, Sequence[Outcome], float]]) -> list[str]:
    """Return the lines that end the output of a run.

    Args:
        verdict: the result.
        stages: name, outcomes and duration in seconds of each stage.
    """
    lines = []
    for name, outcomes, seconds in stages:
        busy = sum(each.seconds for each in outcomes)
        lines.append(f"{name}: {len(outcomes)} tests in {seconds:.0f} s (in sum {busy:.0f} s)")
    every = [each for _, outcomes, _ in stages for each in outcomes]
    slowest = sorted(every, key=lambda each: -each.seconds)[:SLOWEST_SHOWN]
    lines += ["slowest tests:", *(f"  {each.seconds:6.1f} s  {each.test}" for each in slowest)]
    files = costs_of_files(every)[:FILES_SHOWN]
    lines += ["costliest files:", *(f"  {seconds:6.1f} s  {file}" for seconds, file in files)]
    lines += [f"WRONG: {each.test}: {each.reason}" for each in verdict.wrong]
    lines += [f"UNSTABLE: {each.test}: {each.reason}" for each in verdict.unstable]
    failed = len(verdict.wrong)
    if len(verdict.unstable) > UNSTABLE_MAX:
        lines.append(f"a run may have {UNSTABLE_MAX} unstable tests, and this run has more")
        failed += len(verdict.unstable)
    skipped = sum(each.skipped for each in every)
    lines.append(f"{len(every) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return lines


def costs_of_files(outcomes: Iterable[Outcome]) -> list[tuple[float, str]]:
    """Return the duration of the tests of each file in seconds with the file, longest first."""
    costs: dict[str, float] = {}
    for each in outcomes:
        file = each.test.partition("::")[0]
        costs[file] = costs.get(file, 0.0) + each.seconds
    return sorted(((seconds, file) for file, seconds in costs.items()), reverse=True)
