"""Compare a file of declarations with the cluster, and apply the differences."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from taskraft import errors
from taskraft.cli.declared_objects import DeclaredTube, declared_schedule, schedule_change
from taskraft.cli.yaml_file import InvalidDeclaration, YamlFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from taskraft import Client
    from taskraft.cli.declared_changes import DeclaredChange

KINDS: Final = ("tubes", "schedules")


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    """The tubes, schedules and principals of a file."""

    yaml: YamlFile
    tubes: list[dict[str, Any]]
    schedules: list[dict[str, Any]]
    principals: dict[str, Any]
    """Principals by name, in the form of the access file."""
    kinds: frozenset[str]
    """Kinds whose key has a value in the file, which may be empty: the scope of --prune."""

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
        kinds = frozenset(kind for kind, value in content.items() if value is not None)
        return cls(yaml, tubes, schedules, principals, kinds)


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

    Args:
        client: client of the cluster.
        declared: the file.
        prune: True: delete the tubes and schedules that the file does not name.

    Raises:
        ValueError: a declaration is malformed, or changes a property that is fixed.
        TubeBusy: a tube to delete has tasks or is in use.
    """

    def __init__(self, client: Client, declared: DeclarationFile, *, prune: bool) -> None:
        self._client = client
        self._declared: Final = declared
        with declared.yaml.locating():
            self._tubes = {
                each["name"]: DeclaredTube.of(each, ("tubes", position))
                for position, each in enumerate(declared.tubes)
            }
            self._wanted = {
                each["name"]: declared_schedule(client, each, ("schedules", position))
                for position, each in enumerate(declared.schedules)
            }
            self._present = {each.name: each for each in client.list_tubes()}
            self._present_schedules = {each.name: each for each in client.schedules.list()}
            changes = [
                *(each.change(self._present.get(name)) for name, each in self._tubes.items()),
                *(
                    schedule_change(each, self._present_schedules.get(name))
                    for name, each in self._wanted.items()
                ),
            ]
        self._deletions: Final = self._deletions_of(declared.kinds) if prune else []
        self.changes: Final = [*changes, *self._deletions]

    def apply(self) -> None:
        """Create and update the tubes that differ, then schedules; then delete the others."""
        for change in self.changes:
            if change.action in ("create", "update"):
                with self._declared.yaml.locating(), self._naming(change):
                    self._create_or_update(change)
        for change in self._deletions:
            if change.kind == "schedule":
                self._client.schedules.delete(change.name)
                continue
            try:
                self._client.drop_tube(change.name)
            except errors.TubeBusy as error:  # since the check; the server's text has no name
                raise errors.TubeBusy(f"{change.name}: {error}") from None

    @contextmanager
    def _naming(self, change: DeclaredChange) -> Iterator[None]:
        """Name the object in an error of the cluster, which alone knows some of the limits."""
        try:
            yield
        except errors.InvalidField as error:
            kind = f"{change.kind}s"
            objects = self._declared.tubes if kind == "tubes" else self._declared.schedules
            position = [each["name"] for each in objects].index(change.name)
            text = f"{error.reason}: {error}; objects before {change.name} have been applied"
            raise InvalidDeclaration((kind, position), text) from None

    def _deletions_of(self, kinds: frozenset[str]) -> list[DeclaredChange]:
        """Return the deletions of the kinds: schedules first, because they use tubes."""
        from taskraft.cli.pruning import schedules_to_delete, tubes_to_delete

        deletions = []
        schedules = {**self._present_schedules, **self._wanted}
        if "schedules" in kinds:
            deletions = schedules_to_delete(self._wanted, self._present_schedules)
            for change in deletions:
                del schedules[change.name]
        if "tubes" in kinds:
            users = {each.tube: f"schedule {name}" for name, each in schedules.items()}
            for name, tube in self._tubes.items():
                users[tube.dead_letter_tube(self._present.get(name))] = f"dead letters of {name}"
            names = self._present.keys() - self._tubes.keys()
            deletions += tubes_to_delete(self._client, names, users)
        return deletions

    def _create_or_update(self, change: DeclaredChange) -> None:
        if change.kind == "tube":
            self._tubes[change.name].ensure(self._client)
            return
        wanted = self._wanted[change.name]
        if change.action == "update":
            self._client.schedules.update(wanted)
            return
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
