"""Compare a file of declarations with the cluster, and apply the differences."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, Final

import click

from taskraft.cli.output import to_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.message import Message

    from taskraft import Client, Schedule, TubeInfo

KINDS: Final = ("tubes", "schedules")
_FIXED: Final = ("kind", "driver", "profile")
"""Properties of a tube that are fixed at its creation."""
_SCHEDULE_FIELDS: Final = (
    *("cron", "time_zone", "jitter_ms", "catch_up", "overlap", "tube", "spec", "paused"),
)


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """An object that is created or changed, or stays as it is."""

    kind: str
    """Either "tube", "schedule" or "principal"."""
    name: str
    action: str
    """Either "create", "update" or "unchanged"."""
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Values before and after, by the path of the field."""

    def value(self) -> dict[str, Any]:
        """Return the JSON form."""
        pairs = {path: {"before": a, "after": b} for path, (a, b) in self.differences.items()}
        return {"kind": self.kind, "name": self.name, "action": self.action, "differences": pairs}


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    """The tubes, schedules and principals of a file."""

    tubes: list[dict[str, Any]]
    schedules: list[dict[str, Any]]
    principals: dict[str, Any]
    """Principals by name, in the form of the access file."""

    @classmethod
    def load(cls, file: IO[str]) -> DeclarationFile:
        """Read a YAML file.

        Raises:
            ValueError: the file is not YAML, or has another structure.
        """
        import yaml

        try:
            content = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(f"the file is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(content, dict) or not set(content) <= {*KINDS, "principals"}:
            raise ValueError('the file must be a mapping with "tubes", "schedules", "principals"')
        for kind in KINDS:
            entries = content.get(kind) or []
            if not isinstance(entries, list) or not all(
                isinstance(each, dict) and isinstance(each.get("name"), str) for each in entries
            ):
                raise ValueError(f"{kind} must be a list of mappings, each with a name")
            names = [each["name"] for each in entries]
            if len(set(names)) < len(names):
                raise ValueError(f"{kind} has a name twice")
        principals = content.get("principals") or {}
        if not (isinstance(principals, dict) and all(isinstance(each, str) for each in principals)):
            raise ValueError("principals must be a mapping of names")
        return cls(content.get("tubes") or [], content.get("schedules") or [], principals)


class DeclarationPlan:
    """The differences between declarations and a cluster, checked as a whole before a change.

    Raises:
        ValueError: a declaration is malformed, or changes a property that is fixed.
    """

    def __init__(self, client: Client, declared: DeclarationFile) -> None:
        self._client = client
        self._tubes = {each["name"]: _tube_arguments(each) for each in declared.tubes}
        self._wanted = {each["name"]: _schedule(client, each) for each in declared.schedules}
        present = {each.name: each for each in client.list_tubes()}
        self._schedules = {each.name: each for each in client.schedules.list()}
        self.changes: Final = [
            *(_tube_change(name, args, present) for name, args in self._tubes.items()),
            *(_schedule_change(each, self._schedules) for each in self._wanted.values()),
        ]

    def apply(self) -> None:
        """Create and update the tubes that differ, then the schedules that differ."""
        for change in self.changes:
            if change.action == "unchanged":
                continue
            if change.kind == "tube":
                kind, fixed, settings = self._tubes[change.name]
                self._client.ensure_tube(
                    change.name,
                    kind,
                    driver=fixed["driver"],
                    profile=fixed["profile"],
                    **settings,
                )
                continue
            wanted = self._wanted[change.name]
            if change.action == "update":
                self._client.schedules.update(wanted)
                continue
            assert wanted.task is not None, "a declared schedule has a task"
            self._client.schedules.create(
                wanted.name,
                wanted.cron,
                wanted.task,
                time_zone=wanted.time_zone,
                jitter=wanted.jitter_ms / 1_000,
                catch_up=wanted.catch_up,
                overlap=wanted.overlap,
                paused=wanted.paused,
            )


def _tube_arguments(entry: Mapping[str, Any]) -> tuple[Any, dict[str, str], dict[str, Any]]:
    """Return kind, fixed properties and settings of a declared tube."""
    from taskraft._tube_settings import create_request
    from taskraft.cli.tube_settings import default_retry

    settings = {name: value for name, value in entry.items() if name not in ("name", *_FIXED)}
    kind = entry.get("kind", "fifottl")
    fixed = {name: entry.get(name, "") for name in ("driver", "profile")}
    try:
        if isinstance(settings.get("retry"), dict):
            settings["retry"] = replace(default_retry(fixed["profile"]), **settings["retry"])
        create_request(entry["name"], kind, if_not_exists=True, settings=settings, **fixed)  # type: ignore[arg-type]  # create_request checks the names
    except (TypeError, ValueError) as error:
        raise ValueError(f"tube {entry['name']}: {error}") from None
    return kind, fixed, settings


def _tube_change(
    name: str,
    arguments: tuple[Any, dict[str, str], dict[str, Any]],
    present: Mapping[str, TubeInfo],
) -> DeclaredChange:
    """Compare a declared tube with the tube of the cluster."""
    from taskraft._tube_settings import create_request

    kind, fixed, settings = arguments
    request = create_request(name, kind, if_not_exists=True, settings=settings, **fixed)  # type: ignore[arg-type]  # checked before
    found = present.get(name)
    wanted = request.tube.options
    if found is None:
        return DeclaredChange("tube", name, "create", dict(_set_fields(wanted, None)))
    for property_, value in (("kind", kind), *fixed.items()):
        before = getattr(found, property_)
        if before != value and (property_ == "kind" or value):
            raise ValueError(
                f"tube {name}: {property_} is fixed at the creation: {before!r}, not {value!r}"
            )
    differences = dict(_set_fields(wanted, found.message.options))
    return DeclaredChange("tube", name, "update" if differences else "unchanged", differences)


def _set_fields(
    wanted: Message, present: Message | None, path: str = ""
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield path, present and wanted value of the set fields of a message that differ."""
    after, before = to_value(wanted), to_value(present) if present is not None else {}
    for descriptor, value in wanted.ListFields():
        name = descriptor.name
        if descriptor.message_type is not None and not isinstance(after[name], dict | list):
            continue
        if descriptor.message_type is not None and hasattr(value, "ListFields"):
            inner = getattr(present, name) if present is not None else None
            yield from _set_fields(value, inner, f"{path}{name}.")
        elif before.get(name) != after[name]:
            yield f"{path}{name}", (before.get(name), after[name])


def _schedule(client: Client, entry: Mapping[str, Any]) -> Schedule:
    """Return a declared schedule."""
    from taskraft import Schedule
    from taskraft._schedules import schedule_message

    options = {
        name: value
        for name, value in entry.items()
        if name not in ("name", "cron", "tube", "payload", "task")
    }
    missing = [name for name in ("cron", "tube", "payload") if name not in entry]
    if missing:
        raise ValueError(f"schedule {entry['name']}: {', '.join(missing)} missing")
    try:
        task = client.tube(entry["tube"]).task(entry["payload"], **entry.get("task", {}))
        message = schedule_message(entry["name"], entry["cron"], task, options)  # type: ignore[arg-type]  # checked there
    except (TypeError, ValueError) as error:
        raise ValueError(f"schedule {entry['name']}: {error}") from None
    return Schedule.of(message)


def _schedule_change(wanted: Schedule, present: Mapping[str, Schedule]) -> DeclaredChange:
    """Compare a declared schedule with the schedule of the cluster."""
    after, found = to_value(wanted.message), present.get(wanted.name)
    before = to_value(found.message) if found is not None else {}
    differences = {
        name: (before.get(name), after.get(name))
        for name in _SCHEDULE_FIELDS
        if before.get(name) != after.get(name)
    }
    if found is None:
        return DeclaredChange("schedule", wanted.name, "create", differences)
    return DeclaredChange(
        "schedule", wanted.name, "update" if differences else "unchanged", differences
    )


def print_change(change: DeclaredChange) -> None:
    """Print a change like a difference of files."""
    sign = {"create": "+", "update": "~", "unchanged": "="}[change.action]
    click.echo(f"{sign} {change.kind} {change.name}")
    for path, (before, after) in change.differences.items():
        click.echo(f"    {path}: {after}" if before is None else f"    {path}: {before} -> {after}")
