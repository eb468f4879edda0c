"""The tubes and schedules of a file of declarations, compared with those of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from taskraft.cli.declared_changes import DeclaredChange
from taskraft.cli.output import to_value
from taskraft.cli.yaml_file import InvalidDeclaration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from taskraft import Client, Retry, Schedule, TubeInfo
    from taskraft.cli.yaml_file import KeyPath
    from taskraft.v1 import tube_service_pb2

_FIXED: Final = ("kind", "driver", "profile")
"""Properties of a tube that are fixed at its creation."""
_SCHEDULE_KEYS: Final = ("name", "cron", "tube", "payload", "task")
"""Keys of a declared schedule that are no options of the schedule."""
_SCHEDULE_FIELDS: Final = (
    *("cron", "time_zone", "jitter_ms", "catch_up", "overlap", "tube", "spec", "paused"),
)


@dataclass(frozen=True, slots=True)
class DeclaredTube:
    """A tube of a file.

    Raises:
        InvalidDeclaration: a key or a value is wrong, or changes a property that is fixed.
    """

    path: KeyPath
    """Path of the tube in the file."""
    name: str
    fixed: dict[str, Any]
    """Kind, driver and profile."""
    settings: dict[str, Any]

    @classmethod
    def of(cls, entry: Mapping[str, Any], path: KeyPath) -> DeclaredTube:
        """Check each key of a declared tube, and return the tube."""
        settings = {key: value for key, value in entry.items() if key not in ("name", *_FIXED)}
        fixed = {"kind": "fifottl", "driver": "", "profile": ""}
        fixed |= {key: entry[key] for key in _FIXED if key in entry}
        plain = cls(path, entry["name"], {"kind": "fifottl", "driver": "", "profile": ""}, {})
        _check_each(
            path,
            _FIXED,
            lambda key: replace(plain, fixed={**plain.fixed, key: fixed[key]}).request(),
        )
        if isinstance(settings.get("retry"), dict):
            settings["retry"] = _retry(settings["retry"], fixed["profile"], (*path, "retry"))
        _check_each(
            path, settings, lambda key: replace(plain, settings={key: settings[key]}).request()
        )
        tube = cls(path, entry["name"], fixed, settings)
        _check_each(path, ["name"], lambda _key: tube.request())
        return tube

    def request(self) -> tube_service_pb2.CreateTubeRequest:
        """Return the request that creates the tube."""
        from taskraft._tube_settings import create_request

        return create_request(self.name, if_not_exists=True, settings=self.settings, **self.fixed)  # type: ignore[arg-type]  # create_request checks the values

    def change(self, found: TubeInfo | None) -> DeclaredChange:
        """Compare the tube with the tube of the cluster; None: it does not exist."""
        wanted = self.request().tube.options
        if found is None:
            return DeclaredChange("tube", self.name, "create", dict(_set_fields(wanted, None)))
        for property_, value in self.fixed.items():
            before = getattr(found, property_)
            if before != value and (property_ == "kind" or value):
                raise InvalidDeclaration(
                    (*self.path, property_),
                    f"{property_} is fixed at the creation of {self.name}: {before!r}, "
                    f"not {value!r}",
                )
        differences = dict(_set_fields(wanted, found.message.options))
        action = "update" if differences else "unchanged"
        return DeclaredChange("tube", self.name, action, differences)

    def dead_letter_tube(self, found: TubeInfo | None) -> str:
        """Return the dead-letter tube after the tube is applied; empty: none."""
        present = found.options.dead_letter_tube if found is not None else ""
        return str(self.settings.get("dead_letter_tube", present))

    def ensure(self, client: Client) -> None:
        """Create the tube, or bring its options into force."""
        client.ensure_tube(self.name, **self.fixed, **self.settings)


def _retry(given: Mapping[str, Any], profile: str, path: KeyPath) -> Retry:
    """Return the default retry policy with the given parts."""
    from taskraft import Retry
    from taskraft._arguments import check_known
    from taskraft.cli.tube_settings import default_retry

    def check(key: str) -> None:
        check_known([key], Retry, "a retry policy has no part")
        replace(policy, **{key: given[key]}).message()

    policy = default_retry(profile)
    _check_each(path, given, check)
    return replace(policy, **given)


def _check_each(path: KeyPath, keys: Iterable[str], check: Callable[[str], object]) -> None:
    """Check single keys of a mapping, so that an error has the path of its key.

    Raises:
        InvalidDeclaration: a check has raised TypeError or ValueError.
    """
    for key in keys:
        try:
            check(key)
        except (TypeError, ValueError) as error:
            raise InvalidDeclaration((*path, str(key)), error) from None


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


def _field_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], message: Descriptor, path: str = ""
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield path, present and wanted value of the fields that differ, each part on its own.

    Args:
        before: JSON form of the present message.
        after: JSON form of the wanted message.
        message: the type of both.
        path: start of the yielded paths, such as "spec.".
    """
    for name in dict.fromkeys((*before, *after)):
        old, new, part = before.get(name), after.get(name), message.fields_by_name[name]
        kind = part.message_type
        if old == new:
            continue
        if kind is not None and not part.is_repeated and isinstance(old or new, dict):
            yield from _field_differences(old or {}, new or {}, kind, f"{path}{name}.")
        else:
            yield f"{path}{name}", (old, new)


def declared_schedule(client: Client, entry: Mapping[str, Any], path: KeyPath) -> Schedule:
    """Check each key of a declared schedule, and return the schedule.

    Raises:
        InvalidDeclaration: a key is missing or unknown, or its value is wrong.
    """
    from taskraft import Schedule
    from taskraft._arguments import check_known
    from taskraft._schedules import ScheduleOptions, schedule_message

    missing = [key for key in ("cron", "tube", "payload") if key not in entry]
    if missing:
        raise InvalidDeclaration(path, f"{', '.join(missing)} missing")
    options = {key: value for key, value in entry.items() if key not in _SCHEDULE_KEYS}
    parts = entry.get("task") or {}
    if not isinstance(parts, dict):
        raise InvalidDeclaration((*path, "task"), "must be a mapping of options of the task")
    _check_each(path, ["tube"], lambda key: client.tube(entry[key]).task(""))
    tube = client.tube(entry["tube"])
    _check_each(path, ["payload"], lambda key: tube.task(entry[key]))
    _check_each((*path, "task"), parts, lambda key: tube.task("", **{key: parts[key]}))
    task = tube.task(entry["payload"], **parts)

    def check(key: str) -> None:
        check_known([key], ScheduleOptions, "a schedule has no option")
        schedule_message(entry["name"], "* * * * *", task, {key: options[key]})  # type: ignore[misc]  # checked in the line before

    _check_each(path, options, check)
    _check_each(path, ["cron"], lambda key: schedule_message(entry["name"], entry[key], task, {}))
    return Schedule.of(schedule_message(entry["name"], entry["cron"], task, options))  # type: ignore[arg-type]  # checked before


def schedule_change(wanted: Schedule, found: Schedule | None) -> DeclaredChange:
    """Compare a declared schedule with the schedule of the cluster; None: it does not exist."""
    if found is None:
        created = dict(_set_fields(wanted.message, None))
        del created["name"]
        return DeclaredChange("schedule", wanted.name, "create", created)
    before, after = (
        {name: value for name, value in to_value(each.message).items() if name in _SCHEDULE_FIELDS}
        for each in (found, wanted)
    )
    differences = dict(_field_differences(before, after, wanted.message.DESCRIPTOR))
    action = "update" if differences else "unchanged"
    return DeclaredChange("schedule", wanted.name, action, differences)
