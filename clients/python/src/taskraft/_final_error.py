"""Choose the error to raise when the client gives up a call, with advice for the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft import catalogue, errors

if TYPE_CHECKING:
    from collections.abc import Mapping

REPORTED_FAILURES_MAX: Final = 5
"""Maximum number of different failures that one error message lists."""

_MAY_HAVE_CHANGED: Final = (
    "The change may have taken effect: read the state before you repeat the call, or choose a "
    "request_id, with which a repeated call has no second effect."
)
_CHECK_NODES: Final = "`taskraft cluster status` shows whether a majority of the nodes is up."
_NOTHING_CHANGED: Final = "The call has changed nothing."


def final_error(
    failures: Mapping[str, errors.TaskraftError],
    attempts: int,
    seconds: float,
    *,
    is_change: bool,
) -> errors.TaskraftError:
    """Return the error to raise when the deadline of a call has passed.

    A failure that leaves the outcome open has priority, then an error that a node sent, then a
    failed connection. The messages of the other failures are appended. The advice tells whether a
    change may have taken effect, because the caller cannot rely on further retries.

    Args:
        failures: the failures of the attempts by message.
        attempts: number of attempts.
        seconds: time since the call began.
        is_change: the call is not a read.
    """
    if not failures:
        return errors.DeadlinePassed(
            "the deadline passed before the call was sent",
            advice=f"{_NOTHING_CHANGED} Call again with a longer timeout.",
        )
    ranked = sorted(failures.values(), key=_rank)
    chosen = ranked[0]
    others = [error.message for error in ranked[1:REPORTED_FAILURES_MAX]]
    if others:
        chosen.args = (f"{chosen.message}; {'; '.join(others)}",)
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    advice = [f"The client gave up after {tries} in {seconds:.1f} s."]
    if is_change:
        is_open = _rank(chosen) <= _RANK_OF_LOST_ANSWERS
        advice.append(_MAY_HAVE_CHANGED if is_open else _NOTHING_CHANGED)
    advice.append(_remedy(chosen))
    chosen.set_advice(" ".join(filter(None, advice)))
    return chosen


def _remedy(error: errors.TaskraftError) -> str:
    """Return advice about the cause of an error for a call that is not retried again."""
    if isinstance(error, errors.DeadlinePassed):
        return _CHECK_NODES
    row = catalogue.CATALOGUE.get(error.reason)
    return (row.final_advice if row is not None else "") or error.advice


_RANK_OF_LOST_ANSWERS: Final = 1


def _rank(error: errors.TaskraftError) -> int:
    match error:
        case errors.CommitUnknown() | errors.DeadlinePassed():
            return 0
        case errors.Unavailable(is_sent=True):
            return _RANK_OF_LOST_ANSWERS
        case errors.Unavailable(advice=errors.Unavailable.advice):
            return 4  # connection refused, possibly at only one of the host's addresses
        case errors.Unavailable():
            return 3
        case _:
            return 2
