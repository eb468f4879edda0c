"""Compare a file of declarations with the cluster, and apply the differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from taskraft.cli.declared_objects import DeclaredTube, declared_schedule, schedule_change
from taskraft.cli.yaml_file import InvalidDeclaration, YamlFile

if TYPE_CHECKING:
    from taskraft import Client

KINDS: Final = ("tubes", "schedules")


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    """The tubes, schedules and principals of a file."""

    yaml: YamlFile
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
        yaml = YamlFile(file)
        with yaml.locating():
            content = yaml.content
            if not isinstance(content, dict):
                raise InvalidDeclaration((), f"the file must be a mapping with {_known_kinds()}")
            for key in content:
                if key not in (*KINDS, "principals"):
                    raise InvalidDeclaration((str(key),), f"the keys are {_known_kinds()}")
            tubes, schedules = (_entries(kind, content.get(kind)) for kind in KINDS)
            principals = content.get("principals") or {}
            if not isinstance(principals, dict):
                raise InvalidDeclaration(("principals",), "must be a mapping of names")
        return cls(yaml, tubes, schedules, principals)


def _known_kinds() -> str:
    return ", ".join((*KINDS, "principals"))


def _entries(kind: str, entries: object) -> list[dict[str, Any]]:
    """Return the objects of a kind, each with a name that no other object of the kind has."""
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise InvalidDeclaration((kind,), "must be a list of mappings, each with a name")
    names: set[str] = set()
    for position, each in enumerate(entries):
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InvalidDeclaration((kind, position), "must be a mapping with a name")
        if each["name"] in names:
            raise InvalidDeclaration((kind, position, "name"), f"{each['name']} stands twice")
        names.add(each["name"])
    return entries


class DeclarationPlan:
    """The differences between declarations and a cluster, checked as a whole before a change.

    Raises:
        ValueError: a declaration is malformed, or changes a property that is fixed.
    """

    def __init__(self, client: Client, declared: DeclarationFile) -> None:
        self._client = client
        with declared.yaml.locating():
            self._tubes = {
                each["name"]: DeclaredTube.of(each, ("tubes", position))
                for position, each in enumerate(declared.tubes)
            }
            self._wanted = {
                each["name"]: declared_schedule(client, each, ("schedules", position))
                for position, each in enumerate(declared.schedules)
            }
            present = {each.name: each for each in client.list_tubes()}
            present_schedules = {each.name: each for each in client.schedules.list()}
            self.changes: Final = [
                *(each.change(present.get(name)) for name, each in self._tubes.items()),
                *(
                    schedule_change(each, present_schedules.get(name))
                    for name, each in self._wanted.items()
                ),
            ]

    def apply(self) -> None:
        """Create and update the tubes that differ, then the schedules that differ."""
        for change in self.changes:
            if change.action == "unchanged":
                continue
            if change.kind == "tube":
                self._tubes[change.name].ensure(self._client)
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
