"""Commands that give a cluster the members and the leader that a page is tried with."""

import subprocess

from tests.docs.documents import ROOT


def taskraft(*words, status=0):
    """Run a command, which must end with a status; return its output."""
    command = [".venv/bin/taskraft", *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == status, output
    return output


def add(cluster, name):
    """Let a node join as docs/members.md describes; return the node, which votes."""
    target = cluster.target
    node = cluster.joiner(name)
    node.start()
    cluster.wait_until(lambda: node.state() is not None, f"{name} serves")
    taskraft("cluster", "promote", name, "--target", target)
    cluster.wait_ready()
    return node


def leave_alone(cluster, founder):
    """Remove the only founder, so that the member that joined is alone."""
    taskraft("cluster", "remove", founder.name, "--yes", "--target", cluster.target)
    assert founder.wait() == 1
    cluster.nodes = tuple(node for node in cluster.nodes if node is not founder)
    cluster.wait_ready()


def node_of(cluster, name):
    """Return the node with a name."""
    return next(node for node in cluster.nodes if node.name == name)


def lead(cluster, name):
    """Transfer the leadership to a member."""
    if cluster.wait_ready().name != name:
        taskraft("cluster", "transfer", name, "--target", cluster.target)
    cluster.wait_until(lambda: getattr(cluster.leader(), "name", "") == name, f"{name} leads")
