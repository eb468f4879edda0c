"""Find the tubes and schedules of a cluster that a file of declarations does not name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft import errors
from taskraft.cli.declared_changes import DeclaredChange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from taskraft import Client, Schedule, TubeStatistics


def schedules_to_delete(
    keep: Collection[str], present: Mapping[str, Schedule]
) -> list[DeclaredChange]:
    """Return the deletions of schedules; the schedules of apps stay, see `taskraft app apply`.

    Args:
        keep: names of the schedules that stay.
        present: schedules of the cluster by name.

    Raises:
        NotAllowed: the caller cannot see whether a schedule belongs to an app.
    """
    from taskraft.worker.deployment import APP_HEADER

    found = []
    for name in sorted(present.keys() - set(keep)):
        spec = present[name].spec
        if spec is None:
            tube = present[name].tube
            raise errors.NotAllowed(
                f'to delete the schedule "{name}", the caller must be allowed to read "{tube}"'
            )
        if APP_HEADER not in spec.headers:
            found.append(DeclaredChange("schedule", name, "delete"))
    return found


def tubes_to_delete(
    client: Client, names: Collection[str], users: Mapping[str, str]
) -> list[DeclaredChange]:
    """Return the deletions of tubes, which must have no tasks and must not be in use.

    Args:
        client: client of the cluster.
        names: tubes that exist and that the file does not name.
        users: objects that stay and that name a tube, such as "schedule nightly", by tube.

    Raises:
        TubeBusy: a tube has tasks or is in use; the error names all such tubes.
    """
    names = sorted(names)
    if not names:
        return []
    counts = {each.tube: each for each in client.stats(names, brief=True).tubes}
    reasons = {name: _use_of(counts.get(name), users.get(name)) for name in names}
    busy = [f"{name} {reason}" for name, reason in reasons.items() if reason]
    if busy:
        raise errors.TubeBusy(f"only tubes without tasks and use are deleted: {'; '.join(busy)}")
    return [DeclaredChange("tube", name, "delete") for name in names]


def _use_of(statistics: TubeStatistics | None, user: str | None) -> str:
    """Return why a tube cannot be deleted, such as "has 3 tasks"; empty: it can."""
    found = []
    if statistics is not None and statistics.tasks.total:
        found.append(f"has {_several(statistics.tasks.total, 'task')}")
    if statistics is not None and statistics.waiting:
        found.append(f"has {_several(statistics.waiting, 'waiting consumer')}")
    if user is not None:
        found.append(f"is the tube of {user}")
    return ", ".join(found)


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
