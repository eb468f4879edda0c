"""Draw tasks and their dependencies as a graph: layers from left to right, equal tasks folded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft.v1.task_pb2 import Task as TaskMessage

FOLD_MIN: Final = 5
"""Minimum number of tasks of one layer, type and state that are drawn as one node."""
NODE_WIDTH: Final = 176
NODE_HEIGHT: Final = 40
_COLUMN: Final = 236
_ROW: Final = 54
_MARGIN: Final = 8


@dataclass(frozen=True, slots=True)
class GraphTask:
    """One task of a graph."""

    tube: str
    task_id: int
    type: str
    state: str
    waits_for: tuple[tuple[str, int], ...]
    """Tube and id of the unfinished tasks that the task depends on."""

    @property
    def key(self) -> tuple[str, int]:
        """Tube and id."""
        return self.tube, self.task_id


def graph_task(task: TaskMessage) -> GraphTask:
    """Return a stored task as a task of a graph."""
    return GraphTask(
        task.tube,
        task.id,
        task.spec.type,
        task.State.Name(task.state),
        tuple((each.tube, each.id) for each in task.waits_for),
    )


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of a drawing: a task, or several equal tasks."""

    tasks: tuple[GraphTask, ...]
    x: int
    y: int

    @property
    def first(self) -> GraphTask:
        """The task with the lowest id."""
        return self.tasks[0]


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """A drawing with the places of its nodes, in pixels."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[str, ...]
    """Paths of the edges, in the syntax of SVG."""
    width: int
    height: int
    node_width: int = NODE_WIDTH
    node_height: int = NODE_HEIGHT


def draw_graph(tasks: Iterable[GraphTask]) -> GraphDrawing:
    """Return the drawing of tasks; dependencies on tasks that are not given are left out."""
    known = {task.key: task for task in tasks}
    layers = _layers(known)
    folded: dict[tuple[object, ...], list[GraphTask]] = defaultdict(list)
    for key in sorted(known):
        task = known[key]
        folded[layers[key], task.tube, task.type, task.state].append(task)
    columns: dict[int, list[tuple[GraphTask, ...]]] = defaultdict(list)
    for (layer, *_), equal in folded.items():
        assert isinstance(layer, int)
        if len(equal) >= FOLD_MIN:
            columns[layer].append(tuple(equal))
        else:
            columns[layer].extend((task,) for task in equal)
    return _placed(columns)


def _layers(tasks: Mapping[tuple[str, int], GraphTask]) -> dict[tuple[str, int], int]:
    """Return the length of the longest chain of dependencies before each task."""
    layers: dict[tuple[str, int], int] = {}
    waiting = {
        key: {before for before in task.waits_for if before in tasks} for key, task in tasks.items()
    }
    after: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for key, befores in waiting.items():
        for before in befores:
            after[before].append(key)
    free = [key for key, befores in waiting.items() if not befores]
    while free:
        key = free.pop()
        layers[key] = max(
            (layers[before] + 1 for before in tasks[key].waits_for if before in tasks), default=0
        )
        for later in after[key]:
            waiting[later].discard(key)
            if not waiting[later]:
                free.append(later)
    return layers


def _placed(columns: Mapping[int, Sequence[tuple[GraphTask, ...]]]) -> GraphDrawing:
    """Place the nodes of each layer below each other, near the nodes that they wait for."""
    nodes: list[GraphNode] = []
    at: dict[tuple[str, int], GraphNode] = {}
    for layer in sorted(columns):
        for row, equal in enumerate(sorted(columns[layer], key=lambda equal: _height(equal, at))):
            node = GraphNode(equal, _MARGIN + layer * _COLUMN, _MARGIN + row * _ROW)
            nodes.append(node)
            at.update((task.key, node) for task in equal)
    pairs = {
        (at[key].x, at[key].y, node.x, node.y)
        for node in nodes
        for task in node.tasks
        for key in task.waits_for
        if key in at
    }
    return GraphDrawing(
        tuple(nodes),
        tuple(_edge(*pair) for pair in sorted(pairs)),
        max((node.x for node in nodes), default=0) + NODE_WIDTH + _MARGIN,
        max((node.y for node in nodes), default=0) + NODE_HEIGHT + _MARGIN,
    )


def _height(equal: tuple[GraphTask, ...], at: Mapping[tuple[str, int], GraphNode]) -> float:
    """Return the mean height of the nodes that tasks wait for."""
    befores = [at[key].y for task in equal for key in task.waits_for if key in at]
    return sum(befores) / len(befores) if befores else 0.0


def _edge(from_x: int, from_y: int, to_x: int, to_y: int) -> str:
    begin_x, begin_y = from_x + NODE_WIDTH, from_y + NODE_HEIGHT // 2
    end_y = to_y + NODE_HEIGHT // 2
    middle = (begin_x + to_x) // 2
    return f"M{begin_x} {begin_y}C{middle} {begin_y} {middle} {end_y} {to_x} {end_y}"
