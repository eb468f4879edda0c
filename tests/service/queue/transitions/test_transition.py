"""One function changes the state of tasks."""

from __future__ import annotations

import ast
from pathlib import Path

import taskraft_service
from taskraft_service.queue.entities.life_cycle import EVENT_KINDS, LIFE_CYCLE, Operation

PACKAGE = Path(taskraft_service.__file__).parent
WRITERS = {
    "queue/entities/tube.py": {"__init__"},
    "queue/entities/task_codec.py": {"read_task"},
    "queue/transitions/transition.py": {"transition"},
}
"""Functions that may set the state of a task, by module."""
OTHERS = {"group", "self", "sweep"}
"""Names of variables with a state that is not a task's state."""


def assignments(tree):
    """Yield the function and the variable's name of each assignment to ``.state``."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if is_set and node.attr == "state":
                yield function.name, ast.unparse(node.value)


def test_only_the_transition_and_the_codec_set_the_state_of_a_task():
    strange = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for function, variable in assignments(ast.parse(path.read_text())):
            is_task = variable not in OTHERS or name == "queue/entities/tube.py"
            if is_task and function not in WRITERS.get(name, ()):
                strange.append(f"{name}: {function} sets {variable}.state")
    assert strange == []


def test_every_listed_writer_sets_a_state():
    """The table of writers has no superfluous entry."""
    for name, functions in WRITERS.items():
        tree = ast.parse((PACKAGE / name).read_text())
        assert {function for function, _ in assignments(tree)} == functions


def test_every_operation_of_the_life_cycle_has_a_kind_of_event():
    assert {operation for _, operation in LIFE_CYCLE} == set(Operation)
    assert EVENT_KINDS.keys() == set(Operation)
