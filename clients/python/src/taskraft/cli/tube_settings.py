"""Options for tube settings, shared by the commands that create and update tubes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec

import click

from taskraft.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft import Retry, TubeSettings

Params = ParamSpec("Params")

RETRY: Final = ("attempts_max", "backoff", "exhausted")
"""Options of the retry policy."""

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
        "--backoff", type=DURATION, help="Delay after the first failed attempt; it then doubles."
    ),
    click.option(
        "--exhausted",
        type=click.Choice(("bury", "dead_letter", "remove")),
        help="What to do with a task after its last attempt.",
    ),
    click.option(
        "--on-ack",
        type=click.Choice(("remove", "keep", "retain")),
        help="What to do with acknowledged tasks.",
    ),
    click.option("--retain", type=DURATION, help="How long finished tasks are kept."),
    click.option("--dead-letter-tube", help="Tube for exhausted and rejected tasks."),
)


def settings_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options of a tube, in the order of the table."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(given: dict[str, object]) -> TubeSettings:
    """Return the given options as client options."""
    settings: TubeSettings = {}
    retry = {name: given.pop(name) for name in RETRY}
    if any(value is not None for value in retry.values()):
        settings["retry"] = _retry(**retry)
    for option, value in given.items():
        if value is not None:
            settings[option] = value  # type: ignore[literal-required]  # the options are named alike
    return settings


def _retry(**given: object) -> Retry:
    """Return the retry policy of the options."""
    from taskraft import Retry

    named = {name: value for name, value in given.items() if value is not None}
    return Retry(**named)  # type: ignore[arg-type]  # the options are named alike
