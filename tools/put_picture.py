"""Draw the way of a put through the code: docs/pictures/put.svg, see ``tools.pictures``."""

from collections.abc import Callable
from typing import Final, NamedTuple

from taskraft_replication.core.follower import on_append
from taskraft_replication.core.leader import advance_commit
from taskraft_replication.core.proposal import propose
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_service.api.tasks.put_checks import check_put
from taskraft_service.leader.proposer import Proposer
from taskraft_service.machine.state_machine import QueueMachine
from tools.diagram import Box, Diagram, Point

PRODUCER: Final = "producer"
ANSWERED: Final = "answered producer"
PRODUCER_X: Final = 90.0
LEADER_X: Final = 440.0
FOLLOWER_X: Final = 840.0
ROW: Final = 82.0
STEP_WIDTH: Final = 300.0


class PutStep(NamedTuple):
    """One step of a put: what happens, and the function that does it."""

    name: str
    x: float
    row: int
    text: str
    function: Callable[..., object]

    @property
    def code(self) -> str:
        """Path of the function below its distribution, such as `core.leader.advance_commit`."""
        module = self.function.__module__.partition(".")[2]
        return f"{module}.{self.function.__qualname__}"


STEPS: Final = (
    PutStep("check", LEADER_X, 0, "checks the request", check_put),
    PutStep("submit", LEADER_X, 1, "collects commands of many callers", Proposer.submit),
    PutStep("propose", LEADER_X, 2, "makes one entry, with a timestamp", propose),
    PutStep("store", LEADER_X, 3, "writes the entry to the log, and fsyncs", GroupStorage.store),
    PutStep("receive", FOLLOWER_X, 2, "checks that the entry follows its log", on_append),
    PutStep("store there", FOLLOWER_X, 3, "writes the entry, and fsyncs", GroupStorage.store),
    PutStep("commit", LEADER_X, 4, "counts: a majority has it on disk", advance_commit),
    PutStep("apply", LEADER_X, 5, "applies the entry: the task is READY", QueueMachine.apply),
    PutStep(
        "apply there", FOLLOWER_X, 5, "applies the same entry a little later", QueueMachine.apply
    ),
)
ARROWS: Final = (
    (PRODUCER, "check", "PutTasks"),
    ("check", "submit", ""),
    ("submit", "propose", ""),
    ("propose", "store", ""),
    ("propose", "receive", "entry"),
    ("receive", "store there", ""),
    ("store", "commit", ""),
    ("store there", "commit", "acknowledged"),
    ("commit", "apply", ""),
    ("commit", "apply there", "commit index"),
    ("apply", ANSWERED, "task id"),
)


def way_of_a_put() -> Diagram:
    """Draw the steps of a put between the producer's call and its answer."""
    rows = 1 + max(step.row for step in STEPS)
    diagram = Diagram(1010, int(75 + ROW * rows), "The way of a put through leader and follower")
    for x, title in ((LEADER_X, "leader"), (FOLLOWER_X, "each follower")):
        diagram.text(Point(x, 24), (title,), styles=("name",))
    for name, text, row in ((PRODUCER, "puts a task", 0), (ANSWERED, "has the answer", rows - 1)):
        centre = Point(PRODUCER_X, 70 + ROW * row)
        diagram.box(name, Box(centre, ("producer", text), 130, 46, "quiet"))
    for step in STEPS:
        centre = Point(step.x, 70 + ROW * step.row)
        style = "accent" if step.name == "commit" else "box"
        box = Box(centre, (step.text, step.code), STEP_WIDTH, 46, style)
        diagram.box(step.name, box)
    for old, new, label in ARROWS:
        diagram.arrow(old, new, (label,) if label else ())
    note = "The fsyncs of the leader and of the followers run at the same time."
    diagram.text(Point(505, 62 + ROW * rows), (note,), styles=("small",))
    return diagram
