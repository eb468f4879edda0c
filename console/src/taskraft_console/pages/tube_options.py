"""The options of a tube that the console changes: the fields, the values, and the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft_console.pages.page import ChangeForms, shell_word
from taskraft_console.pages.value_form import (
    ValueChange,
    ValueField,
    check_unchanged,
    value_changes,
)
from taskraft_console.views.readable import exact_duration

if TYPE_CHECKING:
    from taskraft import AsyncClient, TubeInfo, TubeSettings

_Count = partial(ValueField, shape="count", hint="0: no limit", has_default=True)
_Time = partial(ValueField, shape="duration", has_default=True)
FIELDS: Final = (
    _Count("concurrency", "Taken at a time, at most"),
    _Count("rate_per_second", "Takes per second, at most"),
    _Time("ttr", "Time to run", hint="for example 90s"),
    _Time("ttl", "Time to live", hint="for example 2h"),
    _Count("capacity_tasks", "Tasks, at most"),
    _Count("capacity_bytes", "Bytes of payloads, at most"),
    _Count("buried_max", "Buried tasks, at most"),
    ValueField(
        "dead_letter_tube", "Dead-letter tube", "text", hint="name of a tube", has_default=True
    ),
)


def option_values(info: TubeInfo) -> dict[str, str]:
    """Return the options in force by name, as texts of the form; empty: not set."""
    return {field.name: _value(info, field) for field in FIELDS}


def _value(info: TubeInfo, field: ValueField) -> str:
    if field.shape == "duration":
        value = getattr(info.options, f"{field.name}_ms")
        return exact_duration(value) if value is not None else ""
    return str(getattr(info.options, field.name) or "")


def update_forms(tube: str, changes: Sequence[ValueChange]) -> ChangeForms:
    """Return a change of options as a command and as Python."""
    words = [f"taskraft tube update {shell_word(tube)}"]
    settings, reset = update_arguments(changes)
    for change in changes:
        field = change.field
        words.append(
            f"{field.flag} {shell_word(change.after)}" if change.after else f"--reset {field.name}"
        )
    arguments = [f"{name}={value!r}" for name, value in settings.items()]
    if reset:
        arguments.append(f"reset={reset!r}")
    return ChangeForms(
        " ".join(words), f"client.update_tube({', '.join([repr(tube), *arguments])})"
    )


def update_arguments(changes: Sequence[ValueChange]) -> tuple[dict[str, object], list[str]]:
    """Return the new values, and the names of the options that go back to their defaults."""
    settings = {change.field.name: change.value for change in changes if change.after}
    return settings, [change.field.name for change in changes if not change.after]


async def update_options(client: AsyncClient, name: str, form: Mapping[str, str]) -> str:
    """Change the options of a tube; return a sentence about the change.

    Raises:
        TubeNotFound: there is no such tube.
        FormRefused: see `value_changes` and `check_unchanged`.
        TaskraftError: the cluster refused the change.
    """
    found = await client.list_tubes([name])
    if not found:
        raise errors.TubeNotFound.named(name)
    changes = value_changes(FIELDS, option_values(found[0]), form)
    check_unchanged(changes, form)
    settings, reset = update_arguments(changes)
    checked: TubeSettings = settings  # type: ignore[assignment]  # keys and types come from FIELDS
    await client.update_tube(name, reset=reset, **checked)
    return "changed: " + ", ".join(
        f"{each.field.name} = {each.after}"
        if each.after
        else f"{each.field.name} back to its default"
        for each in changes
    )
