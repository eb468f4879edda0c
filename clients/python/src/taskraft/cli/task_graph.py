"""The command ``taskraft task graph``: what a task waits for, and what waits for the task."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.task_count import task
from taskraft.cli.task_names import task_argument
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from taskraft.v1.task_service_pb2 import GetTaskGraphResponse

    Place = tuple[str, int]
    Neighbours = Mapping[Place, Sequence[Place]]

__all__ = ["task"]
INDENT: Final = "  "


@task.command(
    epilog=examples("taskraft task graph emails 17", "taskraft task graph emails 17 -o json")
)
@task_argument
@click.option(
    "--depth",
    type=click.IntRange(1, 5),
    default=5,
    show_default=True,
    help="Number of steps from the task.",
)
@watch_option
@output_option("task_service_pb2.GetTaskGraphResponse")
@cluster_options
def graph(
    *, tube: str, task_id: int, depth: int, output: str, target: str | None, timeout: float
) -> None:
    """Show what a task of TUBE waits for, and what waits for it.

    Dependencies that have ended, or are BURIED, are not shown.
    """
    from taskraft.cli.output import write
    from taskraft.cli.terminal_text import terminal_text

    with connect(target, timeout) as client:
        found = client.tube(tube).graph(task_id, depth_max=depth)
    if write([found], output):
        return
    for line in _lines(found):
        click.echo(terminal_text(line))


def _lines(found: GetTaskGraphResponse) -> Iterator[str]:
    """Yield a tree of the dependencies, and a tree of the dependents."""
    dependencies: dict[Place, list[Place]] = defaultdict(list)
    dependents: dict[Place, list[Place]] = defaultdict(list)
    for edge in found.edges:
        first = (edge.dependency.tube, edge.dependency.id)
        second = (edge.dependent.tube, edge.dependent.id)
        dependencies[second].append(first)
        dependents[first].append(second)
    names = {(one.tube, one.id): _name(one.spec.type) for one in found.tasks}
    states = {(one.tube, one.id): type(one).State.Name(one.state) for one in found.tasks}

    def line(place: Place) -> str:
        state = states.get(place, "removed, moved or hidden")
        return f"{place[0]}/{place[1]}  {state}{names.get(place, '')}"

    def tree(place: Place, neighbours: Neighbours, depth: int, seen: set[Place]) -> Iterator[str]:
        for other in neighbours.get(place, ()):
            again = "  (see above)" if other in seen and neighbours.get(other) else ""
            yield INDENT * depth + line(other) + again
            if other not in seen:
                seen.add(other)
                yield from tree(other, neighbours, depth + 1, seen)

    first = (found.tasks[0].tube, found.tasks[0].id)
    yield line(first)
    for title, neighbours in (("waits for", dependencies), ("is awaited by", dependents)):
        yield f"{title}:" if neighbours.get(first) else f"{title} no task"
        yield from tree(first, neighbours, 1, {first})
    if found.truncated:
        yield "The graph goes on; these are the nearest tasks."


def _name(kind: str) -> str:
    return f"  {kind}" if kind else ""
