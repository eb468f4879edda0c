"""Give commands the options of a tube, and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec

import click

from taskraft.cli.options import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft import Retry, TubeSettings

Params = ParamSpec("Params")

RETRY: Final = ("attempts_max", "backoff", "exhausted")
"""Options that make up the retry policy."""

_OPTIONS: Final = (
    click.option("--priority", type=int, help="Priority of tasks that name none."),
    click.option("--delay", type=DURATION, help="Delay of tasks that name none."),
    click.option("--ttl", type=DURATION, help="Time to live of tasks that name none."),
    click.option("--ttr", type=DURATION, help="Time to run of tasks that name none."),
    click.option("--capacity-tasks", type=click.IntRange(1), help="At most so many tasks."),
    click.option(
        "--capacity-bytes", type=click.IntRange(1), help="At most so many bytes of payload."
    ),
    click.option("--buried-max", type=click.IntRange(1), help="At most so many buried tasks."),
    click.option("--concurrency", type=click.IntRange(1), help="At most so many taken at once."),
    click.option(
        "--subqueue-concurrency",
        type=click.IntRange(1),
        help="At most so many of one sub-queue taken at once.",
    ),
    click.option(
        "--rate-per-second", type=click.IntRange(1), help="At most so many takes a second."
    ),
    click.option(
        "--rate-burst", type=click.IntRange(1), help="So many takes at once after a pause."
    ),
    click.option(
        "--subqueue-rate-per-second",
        type=click.IntRange(1),
        help="At most so many takes a second from each sub-queue.",
    ),
    click.option(
        "--subqueue-rate-burst", type=click.IntRange(1), help="So many of these after a pause."
    ),
    click.option(
        "--attempts-max", type=click.IntRange(1), help="A task is taken so often at most."
    ),
    click.option(
        "--backoff", type=DURATION, help="Delay before the second attempt; then it doubles."
    ),
    click.option(
        "--exhausted",
        type=click.Choice(("bury", "dead_letter", "remove")),
        help="What becomes of a task whose attempts are used up.",
    ),
    click.option(
        "--on-ack",
        type=click.Choice(("remove", "keep", "retain")),
        help="What becomes of acknowledged tasks.",
    ),
    click.option("--retain", type=DURATION, help="How long finished tasks are kept."),
    click.option("--dead-letter-tube", help="Where exhausted and rejected tasks go."),
)


def settings_options(command: Callable[Params, None]) -> Callable[Params, None]:
    """Add the options of a tube, in the order of the table."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(given: dict[str, object]) -> TubeSettings:
    """Return the options that were given, in the form of the client."""
    settings: TubeSettings = {}
    retry = {name: given.pop(name) for name in RETRY}
    if any(value is not None for value in retry.values()):
        settings["retry"] = _retry(**retry)
    for option, value in given.items():
        if value is not None:
            settings[option] = value  # type: ignore[literal-required]  # the options are named alike
    return settings


def _retry(**given: object) -> Retry:
    """Return the retry policy that the options describe."""
    from taskraft import Retry

    named = {name: value for name, value in given.items() if value is not None}
    return Retry(**named)  # type: ignore[arg-type]  # the options are named alike
