"""Options for tube settings, shared by the commands that create and update tubes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import click

from taskraft.cli.names import TUBE
from taskraft.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft import Retry, TubeSettings

Params = ParamSpec("Params")

RETRY: Final = ("attempts_max", "backoff", "backoff_max", "jitter", "exhausted")
"""Options of the retry policy; the parts of the policy that are not given stay unchanged."""

ATTEMPTS_MAX_DEFAULT: Final = 20
"""Maximum number of failed attempts in a new tube."""
_COUNT: Final = click.IntRange(1)
_OPTIONS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("--priority", int, "Default priority of tasks."),
    ("--delay", DURATION, "Default delay of tasks."),
    ("--ttl", DURATION, "Default TTL of tasks."),
    ("--ttr", DURATION, "Default TTR of tasks."),
    ("--capacity-tasks", _COUNT, "Maximum number of tasks."),
    ("--capacity-bytes", _COUNT, "Maximum payload bytes of all tasks."),
    ("--buried-max", _COUNT, "Maximum number of buried tasks."),
    ("--concurrency", _COUNT, "Maximum number of TAKEN tasks."),
    ("--subqueue-concurrency", _COUNT, "Maximum number of TAKEN tasks per sub-queue."),
    ("--rate-per-second", _COUNT, "Maximum takes per second."),
    ("--rate-burst", _COUNT, "Maximum takes at once after a pause."),
    ("--subqueue-rate-per-second", _COUNT, "Maximum takes per second from each sub-queue."),
    ("--subqueue-rate-burst", _COUNT, "Maximum takes at once from a sub-queue."),
    (
        "--attempts-max",
        click.IntRange(0),
        "Maximum number of failed attempts of a task; 0: no limit.",
    ),
    (
        "--backoff",
        DURATION,
        "Delay after the first failed attempt; each further failure doubles the delay.",
    ),
    ("--backoff-max", DURATION, "Maximum delay after a failed attempt."),
    (
        "--jitter",
        click.FloatRange(0, 1),
        "Maximum fraction by which a delay after a failed attempt is randomly shortened.",
    ),
    (
        "--exhausted",
        click.Choice(("bury", "dead_letter", "remove")),
        "Action on a task after its last attempt.",
    ),
    (
        "--on-ack",
        click.Choice(("remove", "keep", "retain")),
        "Treatment of acknowledged tasks.",
    ),
    ("--retain", DURATION, "Time for which finished tasks are kept."),
    ("--dead-letter-tube", TUBE, "Tube for exhausted and rejected tasks."),
)
"""Flag, type and help of each option."""


def settings_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options of a tube, in the order of the table."""
    for flag, kind, text in reversed(_OPTIONS):
        command = click.option(flag, type=kind, help=text)(command)
    return command


def settings_of(given: dict[str, object]) -> TubeSettings:
    """Return the given options as client options, without the options of the retry policy."""
    settings: TubeSettings = {}
    for option, value in given.items():
        if option in RETRY:
            continue
        if value is not None:
            settings[option] = value  # type: ignore[literal-required]  # the options are named alike
    return settings


def retry_of(given: dict[str, object], policy: Callable[[], Retry]) -> TubeSettings:
    """Return the retry policy with the given options changed; empty if none is given.

    ``policy`` returns the policy that is changed.
    """
    named = {name: given[name] for name in RETRY if given[name] is not None}
    return {"retry": replace(policy(), **named)} if named else {}  # type: ignore[arg-type]  # the options are named alike


def default_retry(profile: str) -> Retry:
    """Return the default policy of a new tube; the profiles of older systems retry at once."""
    from taskraft import Retry

    if profile:
        return Retry(exhausted="remove" if profile == "rsqueue" else "bury")
    return replace(Retry.forever(), attempts_max=ATTEMPTS_MAX_DEFAULT)
