"""Upgrade of all nodes, loss of the majority, and loss of all nodes, while clients work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taskraft import Client
from tests.drill.faults import Fault, Phase, Scene, await_start
from tests.drill.member_faults import TIMEOUT, promote
from tests.upgrade.next_build import next_build, this_build
from tools.local_node import Node, NodeFailed

COMMAND_SECONDS_MAX = 60
TASKRAFT = (str(Path(sys.executable).with_name("taskraft")),)
NEXT_VERSION = 2
"""Cluster version of the next build."""


KILLED_AT = (
    "restoring.before_rename",
    "restoring.after_sync_directory",
    "state.before_write",
    "state.after_sync",
    "pointer.before_rename@2",
    "pointer.after_sync_directory@2",
    "hard_state.after_rename",
    "identity.before_rename",
    "identity.after_sync_directory",
    "restoring.before_remove",
)
"""Failpoints of a restore, with the crossing if it is not the first one."""


def command(
    arguments: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    expected: int = 0,
    program: Sequence[str] = TASKRAFT,
) -> None:
    """Run ``taskraft`` as an operator does, or another program.

    Raises:
        NodeFailed: the command ended with another status than ``expected``.
    """
    done = subprocess.run(
        [*program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    if done.returncode != expected:
        raise NodeFailed(
            f"{' '.join((*program, *arguments))}: status {done.returncode}, expected {expected}: "
            f"{done.stdout}{done.stderr}"
        )


class Upgrade(Fault):
    """All nodes get the next build, the previous one, and the next one again; then the raise."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(hold_seconds=(0.0, 0.1))
        self._here, self._next = this_build(), next_build(scene.folder / "next")

    def begin(self, scene: Scene) -> list[str]:
        """Replace each node three times, and raise the cluster version.

        Raises:
            NodeFailed: a member found a difference between equal states.
        """
        cluster = scene.cluster
        hit = []
        for name, build in (("next", self._next), ("previous", self._here), ("next", self._next)):
            for node in cluster.nodes:
                node.stop()
                node.environment = {**node.environment, **build}
                node.start()
                cluster.wait_ready()
                hit.append(f"{node.name} runs the {name} build")

        def is_planned() -> bool:
            state = scene.leader().state()
            return state is not None and state.planned_cluster_version == NEXT_VERSION

        cluster.wait_until(is_planned, "the leader plans the raise")
        with Client(cluster.target) as client:
            version = client.upgrade_cluster(timeout=TIMEOUT)
        for node in cluster.nodes:
            if "states differ" in node.log.read_text():
                raise NodeFailed(f"{node.name} found a difference{node.tail()}")
        return [*hit, f"cluster version {version}"]


@dataclass
class LostNodes(Fault):
    """All nodes stop for good, and one of them comes back in some way, as the only member."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.1), kw_only=True)
    stops_all: bool = field(default=True, kw_only=True)

    def last_alive(self, scene: Scene) -> Node:
        """Kill all nodes but the leader, and wait until it has given up; return the node.

        The node has applied everything that any client got an answer for.
        """
        node = scene.cluster.wait_ready()
        for other in scene.cluster.nodes:
            if other is not node:
                other.kill()

        def has_given_up() -> bool:
            state = node.state()
            return state is not None and state.state.phase not in (Phase.RUNNING, Phase.ENDING)

        scene.cluster.wait_until(has_given_up, f"{node.name} leads no more")
        return node

    def rejoin_others(self, scene: Scene, first: Node) -> None:
        """Start the only member, and let all other nodes join without data."""
        first.start()
        await_start(scene, first)
        for node in scene.cluster.nodes:
            if node is first:
                continue
            shutil.rmtree(node.environment["TASKRAFT_DATA_DIR"])
            node.environment = {
                **without(node.environment, "TASKRAFT_PEERS"),
                "TASKRAFT_CLUSTER_ID": first.environment["TASKRAFT_CLUSTER_ID"],
                "TASKRAFT_JOIN": first.address,
            }
            node.start()
            await_start(scene, node)
            promote(scene, node)


@dataclass
class Recover(LostNodes):
    """One copy of the data is left; ``taskraft cluster recover`` makes it the only member."""

    def begin(self, scene: Scene) -> list[str]:
        """Lose the majority, recover with the node that led, and add new nodes."""
        node = self.last_alive(scene)
        node.kill()
        command(["cluster", "recover", "--force-new", "--yes"], node.environment)
        self.rejoin_others(scene, node)
        return [f"{node.name} survives"]


@dataclass
class Restore(LostNodes):
    """No node is left; a backup of the last state is restored into a cluster of another name."""

    _turn: int = field(default=0, init=False)

    def begin(self, scene: Scene) -> list[str]:
        """Save the state of the node that led, lose all nodes, restore, and add new nodes."""
        self._turn += 1
        node = self.last_alive(scene)
        file = str(scene.folder / f"{self._turn}.snapshot")
        command(["snapshot", "save", file, "--local", "--target", node.address])
        node.kill()
        command(["snapshot", "verify", file])
        shutil.rmtree(node.environment["TASKRAFT_DATA_DIR"])
        node.environment = {
            **without(node.environment, "TASKRAFT_PEERS", "TASKRAFT_JOIN"),
            "TASKRAFT_CLUSTER_ID": f"restored-{self._turn}",
        }
        hit = self.restore(node, file)
        self.rejoin_others(scene, node)
        return [f"restored {self._turn} at {node.name}", *hit]

    def restore(self, node: Node, file: str) -> list[str]:
        """Restore the file into the empty data directory of a node; return what else was hit."""
        command(["snapshot", "restore", file], node.environment)
        return []


@dataclass
class KilledRestore(Restore):
    """The restore is killed, at another step each time; a node is started with the part."""

    def restore(self, node: Node, file: str) -> list[str]:
        """Kill a restore, start the node, which must refuse, and run the restore again.

        Raises:
            NodeFailed: the node did not refuse the directory.
        """
        words = ["snapshot", "restore", file]
        step = KILLED_AT[(self._turn - 1) % len(KILLED_AT)]
        name, _, crossing = step.partition("@")
        faults = {"TASKRAFT_FAILPOINTS": f"{name}=kill@{crossing or 1}"}
        program = (sys.executable, "-m", "tests.failpoints")
        command(["restore", file], {**node.environment, **faults}, -signal.SIGKILL, program)
        said = len(node.log.read_text())
        node.start()
        status = node.wait()
        if status != 1 or "an interrupted restore" not in node.log.read_text()[said:]:
            raise NodeFailed(f"{node.name} exited with {status}, not with 1:{node.tail()}")
        node.close()
        command(words, node.environment)
        return [f"killed at {step}"]


def without(environment: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return an environment without some variables."""
    return {name: text for name, text in environment.items() if name not in names}
