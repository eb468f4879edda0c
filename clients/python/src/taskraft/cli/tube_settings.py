"""Options for tube settings, shared by the commands that create and update tubes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, ParamSpec

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
_OPTIONS: Final = (
    click.option("--priority", type=int, help="Default priority of tasks."),
    click.option("--delay", type=DURATION, help="Default delay of tasks."),
    click.option("--ttl", type=DURATION, help="Default TTL of tasks."),
    click.option("--ttr", type=DURATION, help="Default TTR of tasks."),
    click.option("--capacity-tasks", type=click.IntRange(1), help="Maximum number of tasks."),
    click.option(
        "--capacity-bytes", type=click.IntRange(1), help="Maximum payload bytes of all tasks."
    ),
    click.option("--buried-max", type=click.IntRange(1), help="Maximum number of buried tasks."),
    click.option("--concurrency", type=click.IntRange(1), help="Maximum number of TAKEN tasks."),
    click.option(
        "--subqueue-concurrency",
        type=click.IntRange(1),
        help="Maximum number of TAKEN tasks per sub-queue.",
    ),
    click.option("--rate-per-second", type=click.IntRange(1), help="Maximum takes per second."),
    click.option(
        "--rate-burst", type=click.IntRange(1), help="Maximum takes at once after a pause."
    ),
    click.option(
        "--subqueue-rate-per-second",
        type=click.IntRange(1),
        help="Maximum takes per second from each sub-queue.",
    ),
    click.option(
        "--subqueue-rate-burst",
        type=click.IntRange(1),
        help="Maximum takes at once from a sub-queue.",
    ),
    click.option(
        "--attempts-max",
        type=click.IntRange(0),
        help="Maximum number of failed attempts of a task; 0: no limit.",
    ),
    click.option(
        "--backoff",
        type=DURATION,
        help="Delay after the first failed attempt; each further failure doubles the delay.",
    ),
    click.option("--backoff-max", type=DURATION, help="Maximum delay after a failed attempt."),
    click.option(
        "--jitter",
        type=click.FloatRange(0, 1),
        help="Maximum fraction by which a delay after a failed attempt is randomly shortened.",
    ),
    click.option(
        "--exhausted",
        type=click.Choice(("bury", "dead_letter", "remove")),
        help="Action on a task after its last attempt.",
    ),
    click.option(
        "--on-ack",
        type=click.Choice(("remove", "keep", "retain")),
        help="Treatment of acknowledged tasks.",
    ),
    click.option("--retain", type=DURATION, help="Time for which finished tasks are kept."),
    click.option("--dead-letter-tube", type=TUBE, help="Tube for exhausted and rejected tasks."),
)


def settings_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options of a tube, in the order of the table."""
    for option in reversed(_OPTIONS):
        command = option(command)
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
