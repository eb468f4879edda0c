"""Forms for values in force: the fields, the differences, and the check against other changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from taskraft._durations import milliseconds
from taskraft_console.pages.page import FormRefused, PageVisit

Shape = Literal["duration", "count", "flag", "kind", "text"]


@dataclass(frozen=True, slots=True)
class ValueField:
    """A value that a form can change."""

    name: str
    """Name of the argument of the client."""
    label: str
    """Name for people."""
    shape: Shape
    choices: tuple[str, ...] = ()
    """Allowed values; empty: all values of the shape."""
    hint: str = ""
    """Example or meaning of a value, for people."""
    has_default: bool = False
    """True: an empty value, or 0, sets the value back to its default."""

    @property
    def flag(self) -> str:
        """Option of the command line."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class ValueChange:
    """The difference between a value in force and the value in a form."""

    field: ValueField
    before: str
    """Value in force; empty: none."""
    after: str
    """New value; empty: the default."""

    @property
    def label(self) -> str:
        """Name for people."""
        return self.field.label

    @property
    def value(self) -> object:
        """New value, as an argument of the client."""
        match self.field.shape:
            case "flag":
                return self.after == "yes"
            case "count":
                return int(self.after)
            case _:
                return self.after


def value_changes(
    fields: Sequence[ValueField], current: Mapping[str, str], form: Mapping[str, str]
) -> tuple[ValueChange, ...]:
    """Return the differences between the values in force and a form.

    A field that the form lacks does not change.

    Args:
        fields: fields of the form.
        current: values in force by name; empty: no value.
        form: entered values by name.

    Raises:
        FormRefused: an entered value does not have the shape of its field.
    """
    return tuple(_changes(fields, current, form))


def _changes(
    fields: Sequence[ValueField], current: Mapping[str, str], form: Mapping[str, str]
) -> Iterator[ValueChange]:
    for field in fields:
        before = current[field.name]
        after = form.get(field.name, before).strip()
        wanted = _comparable(field, after)
        if wanted == _comparable(field, before):
            continue
        if not after and not field.has_default:
            raise FormRefused(f"{field.label}: the value is missing")
        yield ValueChange(field, before, "" if field.has_default and not wanted else after)


def _comparable(field: ValueField, text: str) -> str | int:
    """Return a value such that different texts of the same value are equal.

    Raises:
        FormRefused: the text does not have the shape of the field.
    """
    if not text:
        return 0 if field.has_default and field.shape != "text" else ""
    match field.shape:
        case "duration":
            try:
                return milliseconds(text, field.name)
            except ValueError as error:
                raise FormRefused(f"{field.label}: {error}") from None
        case "count":
            if not text.isdecimal():
                raise FormRefused(f"{field.label}: {text!r} is not a number")
            return int(text)
        case "flag" | "kind" | "text":
            if field.choices and text not in field.choices:
                choices = ", ".join(field.choices)
                raise FormRefused(f"{field.label}: {text!r} is not one of {choices}")
            return text


@dataclass(frozen=True, slots=True)
class EnteredValues:
    """The values that the visitor of a page has entered, compared with the values in force."""

    form: Mapping[str, str]
    """Entered values by name."""
    changes: tuple[ValueChange, ...] = ()
    mistake: str = ""
    """Sentence about an invalid value; empty: all values are valid."""


def entered_values(
    visit: PageVisit, fields: Sequence[ValueField], current: Mapping[str, str]
) -> EnteredValues:
    """Return the entered values of a visit; `current` has the values in force by name."""
    entered = visit.form or visit.query
    form = {field.name: entered[field.name] for field in fields if field.name in entered}
    try:
        return EnteredValues(form, value_changes(fields, current, form))
    except FormRefused as error:
        return EnteredValues(form, mistake=str(error))


def check_unchanged(changes: Sequence[ValueChange], form: Mapping[str, str]) -> None:
    """Check that the values in force are still the values that the reader of the form saw.

    The form has the seen value of each changed field as `before-NAME`.

    Raises:
        FormRefused: the form changes nothing, or another value is in force now.
    """
    if not changes:
        raise FormRefused("The form changes nothing.")
    for change in changes:
        seen = form.get(f"before-{change.field.name}")
        if seen is not None and seen != change.before:
            none = "default" if change.field.has_default else ""
            raise FormRefused(
                f"{change.label}: the form showed {seen or none!r}, and "
                f"{change.before or none!r} is in force now. Nothing was changed. Compare again."
            )
