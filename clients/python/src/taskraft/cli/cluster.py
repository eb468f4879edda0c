"""``taskraft cluster``."""

from __future__ import annotations

import click

from taskraft.cli.options import cluster_options, connect, examples, output_option


@click.group(epilog=examples("taskraft cluster status"))
def cluster() -> None:
    """Show the cluster."""


@cluster.command(epilog=examples("taskraft cluster status -o json"))
@output_option
@cluster_options
def status(*, output: str, target: str | None, timeout: float) -> None:
    """Show the members, who leads, and how far each has come."""
    from taskraft.cli.output import write, write_table  # noqa: PLC0415
    from taskraft.v1.cluster_service_pb2 import Member, NodeState  # noqa: PLC0415

    with connect(target, timeout) as client:
        state = client.cluster_state()
        if state.leader_address and state.leader != state.node:
            state = client.cluster_state()  # the leader has answered now, and sees the others
    if write([state], output):
        return
    leader_sees = state.leader == state.node
    rows = []
    for member in state.members:
        match = state.state.last_index if member.leader else member.match_index
        rows.append(
            (
                member.name,
                "leader" if member.leader else Member.Suffrage.Name(member.suffrage).lower(),
                member.address,
                match if leader_sees else "?",
                max(state.state.last_index - match, 0) if leader_sees else "?",
                "yes" if member.leader or member.active else "no" if leader_sees else "?",
            )
        )
    write_table(("NODE", "ROLE", "ADDRESS", "MATCH", "LAG", "ACTIVE"), rows)
    voters = sum(member.suffrage == Member.VOTER for member in state.members)
    phase = NodeState.Phase.Name(state.state.phase)
    click.echo(
        f"\nleader {state.leader or 'unknown'}, term {state.state.term}, "
        f"{voters} voters, can lose {max((voters - 1) // 2, 0)}; "
        f"answered by {state.node} ({phase}, version {state.version})"
    )
