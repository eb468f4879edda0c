"""Draw the pictures of the documentation from tables of the code: `python -m tools.pictures`.

The tables decide which arrows and boxes a picture has; this module decides their places. Writes
``docs/pictures/*.svg`` and docs/life-cycle.md.
"""

import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from taskraft_replication.core.roles import ROLE_CHANGES
from taskraft_replication.core.types import RaftRole
from taskraft_service.leader.node_phases import PHASE_TRANSITIONS, NodePhase
from taskraft_service.queue.entities.life_cycle import LIFE_CYCLE, Operation
from taskraft_service.queue.entities.task_state import State
from tools.diagram import Box, Diagram, Point
from tools.first_minute import recording
from tools.put_picture import way_of_a_put
from tools.rate_picture import rate_curve

ROOT: Final = Path(__file__).parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
LIFE_CYCLE_PAGE: Final = ROOT / "docs" / "life-cycle.md"

NEW: Final = "new"
"""Box of tasks that do not exist yet; `State.GONE` names tasks that do not exist any more."""
TASK_PLACES: Final[Mapping[str, Point]] = {
    NEW: Point(70, 235),
    "HELD": Point(300, 60),
    "READY": Point(510, 235),
    "DELAYED": Point(300, 420),
    "TAKEN": Point(800, 235),
    "BURIED": Point(680, 500),
    "DONE": Point(960, 60),
    "ZOMBIE": Point(960, 420),
    "GONE": Point(1090, 235),
}
DRAWN: Final = frozenset(
    {
        *(Operation.PUT, Operation.PUT_DELAYED, Operation.PUT_HELD),
        *(Operation.TAKE, Operation.ACK, Operation.ACK_KEEP, Operation.ACK_RETAIN),
        *(Operation.RELEASE, Operation.RELEASE_DELAYED, Operation.BURY_TAKEN, Operation.REJECT),
        *(Operation.EXHAUST, Operation.KICK, Operation.KICK_DELAYED, Operation.DELAY_END),
        *(Operation.LEASE_END, Operation.LEASE_END_DELAYED),
        *(Operation.SESSION_END, Operation.SESSION_END_DELAYED, Operation.RETENTION_END),
        *(Operation.GROUP_START, Operation.GROUP_START_DELAYED),
        *(Operation.DEPENDENCIES_DONE, Operation.DEPENDENCIES_DONE_DELAYED),
        *(Operation.DEPENDENCY_FAILED, Operation.TOUCH),
    }
)
"""Operations in the picture: operations of producers, consumers and the clock. The page lists all.
"""
TASK_BENDS: Final = {
    ("TAKEN", "READY"): 30,
    ("READY", "TAKEN"): 35,
    ("HELD", "DELAYED"): 35,
    (NEW, "READY"): -55,
}

PHASE_PLACES: Final = {
    NodePhase.INIT: Point(90, 150),
    NodePhase.WAITING: Point(330, 260),
    NodePhase.STARTUP: Point(330, 60),
    NodePhase.RUNNING: Point(700, 60),
    NodePhase.ENDING: Point(700, 260),
}
PHASE_BENDS: Final = {
    (NodePhase.RUNNING, NodePhase.ENDING): 55,
    (NodePhase.ENDING, NodePhase.RUNNING): 45,
}
ROLE_PLACES: Final = {
    RaftRole.FOLLOWER: Point(120, 215),
    RaftRole.PRE_CANDIDATE: Point(470, 90),
    RaftRole.CANDIDATE: Point(850, 215),
    RaftRole.LEADER: Point(480, 400),
}
ROLE_BENDS: Final = {
    (RaftRole.FOLLOWER, RaftRole.PRE_CANDIDATE): 45,
    (RaftRole.PRE_CANDIDATE, RaftRole.FOLLOWER): 25,
    (RaftRole.PRE_CANDIDATE, RaftRole.CANDIDATE): 45,
    (RaftRole.CANDIDATE, RaftRole.PRE_CANDIDATE): 25,
    (RaftRole.FOLLOWER, RaftRole.CANDIDATE): 0,
    (RaftRole.CANDIDATE, RaftRole.FOLLOWER): 60,
}

LIFE_CYCLE_HEAD: Final = """# Life cycle of a task

<!-- Written by `python -m tools.pictures` from the table LIFE_CYCLE; do not edit. -->

A task is in exactly one state at a time. The picture shows the operations of producers, of
consumers and of the clock.

![State diagram of a task](pictures/life-cycle.svg)

| state | meaning |
| --- | --- |
| READY | a consumer can take the task |
| DELAYED | the task becomes READY when its delay ends |
| TAKEN | one consumer holds a lease on the task |
| BURIED | the task has failed, and waits for an operator: kick, restart, move or delete it |
| HELD | the task waits for the start of its group, or for the tasks that it depends on |
| DONE | the task has been processed and is kept, because the consumer or the tube asks for it |
| ZOMBIE | the task has been processed, and its result is retained for a period |
| GONE | the task does not exist any more |

A lease ends by an acknowledgement, a release, a burial or the end of a time: the TTR of the lease
(`LEASE_END`) or the timeout of the consumer's session (`SESSION_END`). The retry policy decides
whether a failed task becomes READY, DELAYED or BURIED ([tubes.md](tubes.md#failed-attempts)).

## All transitions

The queue refuses an operation that the table does not list for the state of the task. DELAYED in
the name of an operation means that the operation has a delay above 0 ms.

| from | to | operations |
| --- | --- | --- |
"""


def life_cycle() -> Diagram:
    """Draw the states of a task."""
    diagram = Diagram(1160, 540, "States of a task, and the operations that change them")
    styles = {NEW: "quiet", "GONE": "quiet", "TAKEN": "accent"}
    for name, centre in TASK_PLACES.items():
        diagram.box(name, Box(centre, (name,), style=styles.get(name, "box")))
    drawn = {
        (old, new): [operation for operation in operations if operation in DRAWN]
        for (old, new), operations in transitions().items()
    }
    for (old, new), operations in drawn.items():
        if operations:
            names = [_words(operation.name) for operation in operations]
            origin = NEW if old is State.GONE else old.name
            bend = TASK_BENDS.get((origin, new.name), 0)
            diagram.arrow(origin, new.name, _wrapped(names, new), bend)
    return diagram


def phases() -> Diagram:
    """Draw the phases of a node."""
    diagram = Diagram(830, 330, "Phases of a node, and the events that change them")
    styles = {NodePhase.RUNNING: "accent", NodePhase.WAITING: "box"}
    for phase, centre in PHASE_PLACES.items():
        diagram.box(phase.name, Box(centre, (phase.name,), style=styles.get(phase, "quiet")))
    events: dict[tuple[NodePhase, NodePhase], list[str]] = {}
    for (old, event), new in PHASE_TRANSITIONS.items():
        events.setdefault((old, new), []).append(event.value)
    for (old, new), labels in events.items():
        diagram.arrow(old.name, new.name, labels, PHASE_BENDS.get((old, new), 0))
    return diagram


def roles() -> Diagram:
    """Draw the roles of a Raft member."""
    diagram = Diagram(970, 460, "Roles of a Raft member, and the causes of their changes")
    for role, centre in ROLE_PLACES.items():
        style = "accent" if role is RaftRole.LEADER else "box"
        diagram.box(role.value, Box(centre, (role.value.replace("_", "-"),), 120, style=style))
    for (old, new), cause in ROLE_CHANGES.items():
        lines = [line for part in cause.split("; ") for line in textwrap.wrap(part, 26)]
        diagram.arrow(old.value, new.value, lines, ROLE_BENDS.get((old, new), 0))
    return diagram


def packages() -> Diagram:
    """Draw the layers of the two server packages, from the import contracts."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = configuration["tool"]["importlinter"]["contracts"]
    layers = {
        contract["containers"][0]: contract["layers"]
        for contract in contracts
        if contract["type"] == "layers"
    }
    columns = ("taskraft_service", "taskraft_replication")
    height = 90 + 46 * max(len(layers[column]) for column in columns)
    diagram = Diagram(980, height, "Packages of the server: each imports only packages below it")
    for number, column in enumerate(columns):
        left = 20 + 490 * number
        diagram.text(Point(left + 225, 30), (column,), styles=("name",))
        for row, layer in enumerate(layers[column]):
            _draw_layer(diagram, column, layer, Point(left, 65 + 46 * row))
    bottom = (
        "A package imports only packages below it. The orange packages are pure: no I/O, no clock."
    )
    diagram.text(Point(490, height - 14), (bottom,), styles=("small",))
    return diagram


def cluster() -> Diagram:
    """Draw clients and nodes: the picture of the README."""
    diagram = Diagram(900, 300, "Producers and consumers call a cluster of three nodes")
    diagram.box("producer", Box(Point(90, 80), ("producer", "any language"), 130, 50))
    diagram.box("consumer", Box(Point(90, 220), ("consumer", "worker, any language"), 160, 50))
    leader = ("leader", "orders all changes in a Raft log")
    follower = ("follower", "same log and state; forwards calls")
    diagram.box("leader", Box(Point(480, 150), leader, 220, 54, "accent"))
    diagram.box("one", Box(Point(770, 65), follower, 230, 54))
    diagram.box("two", Box(Point(770, 235), follower, 230, 54))
    diagram.arrow("producer", "leader", ("put",), 12)
    diagram.arrow("leader", "consumer", ("task with a lease",), -26)
    diagram.arrow("consumer", "leader", ("take, ack",), -26)
    diagram.arrow("leader", "one", ("entries",))
    diagram.arrow("leader", "two", ("entries",))
    note = "A call is answered after a majority of the nodes has the change on disk."
    diagram.text(Point(450, 288), (note,), styles=("small",))
    return diagram


def life_cycle_page() -> str:
    """Return the page with the complete table of transitions."""
    rows = [
        f"| {'—' if old is State.GONE else old.name} | {new.name} | {_codes(operations)} |\n"
        for (old, new), operations in transitions().items()
    ]
    return LIFE_CYCLE_HEAD + "".join(rows)


def transitions() -> dict[tuple[State, State], list[Operation]]:
    """Return the operations of the life cycle by state before and state after."""
    found: dict[tuple[State, State], list[Operation]] = {}
    for (old, operation), new in sorted(LIFE_CYCLE.items()):
        found.setdefault((old, new), []).append(operation)
    return found


def files() -> dict[Path, str]:
    """Return every generated file with its content."""
    drawings = {
        "life-cycle": life_cycle(),
        "phases": phases(),
        "roles": roles(),
        "packages": packages(),
        "cluster": cluster(),
        "put": way_of_a_put(),
        "rate-curve": rate_curve(),
    }
    pictures = {PICTURES / f"{name}.svg": drawing.svg() for name, drawing in drawings.items()}
    pictures[PICTURES / "first-minute.svg"] = recording()
    return {**pictures, LIFE_CYCLE_PAGE: life_cycle_page()}


def _draw_layer(diagram: Diagram, column: str, layer: str, corner: Point) -> None:
    """Draw the packages of one layer beside each other."""
    names = [name.strip() for name in layer.split("|")]
    spare = 450 - sum(map(_text_width, names))
    left = corner.x
    for name in names:
        style = "accent" if name in {"queue", "core"} else "box"
        width = _text_width(name) + spare / len(names)
        centre = Point(left + width / 2, corner.y + 8)
        diagram.box(f"{column}.{name}", Box(centre, (name,), width - 8, 34, style))
        left += width


def _text_width(text: str) -> float:
    """Return the approximate width of a bold text in pixels."""
    return 7.6 * len(text)


def _words(name: str) -> str:
    return name.lower().replace("_", " ").replace(" taken", "")


def _wrapped(names: Iterable[str], new: State) -> list[str]:
    """Return the lines of a label; an arrow to DELAYED needs no word for the delay."""
    shown = [name.removesuffix(" delayed") if new is State.DELAYED else name for name in names]
    return textwrap.wrap(", ".join(shown), 24)


def _codes(operations: Iterable[Operation]) -> str:
    return ", ".join(f"`{operation.name}`" for operation in operations)


def main() -> None:
    """Write the pictures and the page."""
    PICTURES.mkdir(exist_ok=True)
    for path, content in files().items():
        path.write_text(content)


if __name__ == "__main__":
    main()
