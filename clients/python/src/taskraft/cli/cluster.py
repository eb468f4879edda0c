"""The command ``taskraft cluster``: show and change settings and members of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskraft.cli.confirmation import Confirmation, destroys
from taskraft.cli.options import (
    DURATION,
    ExtensibleGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output_shape import fields
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from taskraft import Client
    from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member


@click.group(
    cls=ExtensibleGroup,
    entry_points="taskraft.commands.cluster",
    epilog=examples("taskraft cluster status"),
)
def cluster() -> None:
    """Show the cluster; change settings and members."""


@cluster.command(epilog=examples("taskraft cluster status -o json"))
@watch_option
@output_option("cluster_service_pb2.GetClusterStateResponse")
@cluster_options
def status(*, output: str, target: str | None, timeout: float) -> None:
    """Show the members with their log progress, clocks and disks.

    CLOCK is the wall clock of a member minus the wall clocks of a majority of the voters. VERSIONS
    are the cluster versions that the release of a member speaks. DISK FREE and SNAPSHOT, the age of
    the last snapshot that a client has fetched, come from each node itself.
    """
    from taskraft.cli.output import write, write_table
    from taskraft.v1.cluster_service_pb2 import Member, NodeState

    with connect(target, timeout) as client:
        state = state_of_leader(client)
        if write([state], output):
            return
        nodes = client.node_states()
    leader_sees = state.leader == state.node
    rows = []
    for member in state.members:
        match = state.state.last_index if member.leader else member.match_index
        rows.append(
            (
                member.id,
                member.name,
                _role(member),
                member.address,
                match if leader_sees else "?",
                max(state.state.last_index - match, 0) if leader_sees else "?",
                "yes" if member.leader or member.active else "no" if leader_sees else "?",
                _versions(member),
                f"{member.wall_deviation_ms:+d} ms"
                if member.HasField("wall_deviation_ms")
                else "?",
                *_volume(nodes.get(member.name)),
            )
        )
    titles = ("ID", "NODE", "ROLE", "ADDRESS", "MATCH", "LAG", "ACTIVE", "VERSIONS", "CLOCK")
    write_table((*titles, "DISK FREE", "SNAPSHOT"), rows)
    voters = sum(member.suffrage == Member.VOTER for member in state.members)
    phase = NodeState.Phase.Name(state.state.phase)
    led = (
        f"leader {state.leader}, term {state.state.term}, "
        f"{voters} voters, tolerates {max((voters - 1) // 2, 0)} down"
        if state.leader
        else f"no leader: {voters // 2 + 1} of {voters} voters must be up"
    )
    click.echo(f"\n{led}; answered by {state.node} ({phase}, version {state.version})")
    planned = state.planned_cluster_version
    click.echo(
        f"cluster version {state.cluster_version}" + (f", {planned} is planned" if planned else "")
    )
    for line in _replacements(state.members):
        click.echo(line)
    for blocker in state.upgrade_blockers:
        click.echo(f"cluster version not raised: {blocker}")
    if state.clock_problem:
        click.echo(f"clock problem of {state.node}: {state.clock_problem}")


def _volume(told: GetClusterStateResponse | None) -> tuple[str, str]:
    """Return the free space of a node's disk and the age of its last snapshot, for people."""
    from taskraft.cli.output import show_duration

    if told is None or not told.state.HasField("disk_free_bytes"):
        return "?", "?"
    node = told.state
    free = f"{node.disk_free_bytes / 2**30:,.1f} GiB" + (", low" if node.disk_low else "")
    age_ms = max(told.now_ms - node.snapshot_ms, 0)
    return free, show_duration(age_ms) if node.snapshot_ms else "none"


def state_of_leader(client: Client) -> GetClusterStateResponse:
    """Return the state of the cluster, from the leader if there is one."""
    state = client.cluster_state()
    if state.leader_address and state.leader != state.node:
        # This call goes to the leader, which knows the progress of all members.
        state = client.cluster_state()
    return state


def _role(member: Member) -> str:
    """Return the role of a member, and whether it has not joined or is not admitted yet."""
    from taskraft.v1.cluster_service_pb2 import Member

    role = "leader" if member.leader else Member.Suffrage.Name(member.suffrage).lower()
    if not member.joined:
        return f"{role}, not joined"
    return f"{role}, not admitted" if member.added_itself else role


def _replacements(members: Iterable[Member]) -> Iterator[str]:
    """Return one line for each member that is being replaced."""
    for member in members:
        if member.replaces:
            problem = member.replacement_problem
            yield (
                f"{member.name}: member {member.id} replaces member {member.replaces}, which has"
                f" lost its data" + (f"; waits: {problem}" if problem else "")
            )


def _versions(member: Member) -> str:
    """Return the cluster versions that a member speaks."""
    lowest, highest = member.lowest_cluster_version, member.highest_cluster_version
    if not highest:
        return "?"
    return f"{highest}" if lowest == highest else f"{lowest}-{highest}"


@cluster.command(
    epilog=examples("taskraft cluster upgrade --dry-run", "taskraft cluster upgrade --yes")
)
@output_option(
    "cluster_service_pb2.UpgradeClusterResponse",
    preview=fields("dry_run", "cluster_version", "planned_cluster_version", "upgrade_blockers"),
)
@destroys("A raised cluster version cannot be lowered.")
@cluster_options
def upgrade(*, confirmation: Confirmation, output: str, target: str | None, timeout: float) -> None:
    """Raise the cluster version now, before the end of the hold.

    All members must speak the new version. Afterwards, the previous release can no longer be
    started on the data of the nodes.
    """
    from taskraft.cli.output import write
    from taskraft.v1.cluster_service_pb2 import UpgradeClusterResponse

    with connect(target, timeout) as client:
        if not confirmation.allows(
            lambda: _upgrade_question(client.cluster_state()),
            lambda: _preview_upgrade(client.cluster_state(), output),
        ):
            return
        version = client.upgrade_cluster()
    if not write([UpgradeClusterResponse(cluster_version=version)], output):
        click.echo(f"cluster version {version}")


def _upgrade_question(state: GetClusterStateResponse) -> str:
    planned = f" to {state.planned_cluster_version}" if state.planned_cluster_version else ""
    return (
        "Afterwards, the previous release cannot be started on the data of the nodes."
        f" Raise the cluster version {state.cluster_version}{planned}?"
    )


def _preview_upgrade(state: GetClusterStateResponse, output: str) -> None:
    """Print the cluster version, the planned one, and what prevents the raise."""
    from taskraft.cli.output import write_values

    value = {
        "dry_run": True,
        "cluster_version": state.cluster_version,
        "planned_cluster_version": state.planned_cluster_version,
        "upgrade_blockers": [*state.upgrade_blockers],
    }
    if write_values([value], output):
        return
    planned = state.planned_cluster_version or "none"
    click.echo(f"cluster version {state.cluster_version}, planned: {planned}")
    for blocker in state.upgrade_blockers:
        click.echo(f"not raised: {blocker}")


@cluster.command(
    epilog=examples(
        "taskraft cluster settings",
        "taskraft cluster settings --session-ttr 30s --auto-create-tubes",
    )
)
@click.option(
    "--failover-grace",
    type=DURATION,
    help="Minimum time for which sessions survive a change of leader.",
)
@click.option(
    "--session-ttr",
    type=DURATION,
    help="Default session TTR: lifetime of a session after its last heartbeat.",
)
@click.option(
    "--auto-create-tubes/--no-auto-create-tubes",
    default=None,
    help="Create a missing tube on the first put.",
)
@click.option(
    "--auto-create-kind",
    type=click.Choice(("fifo", "fifottl", "utube", "utubettl")),
    help="Kind of tubes that the first put creates.",
)
@click.option("--auto-create-profile", help="Profile of tubes that the first put creates.")
@click.option(
    "--feed-retention",
    type=DURATION,
    help="Minimum age at which events of the feed may be removed.",
)
@click.option(
    "--feed-bytes-max", type=click.IntRange(1), help="Maximum size of the feed on a node, in bytes."
)
@click.option(
    "--upgrade-hold",
    type=DURATION,
    help="Minimum time for which all members must speak a higher cluster version before the raise.",
)
@click.option(
    "--cluster-version-max",
    type=click.IntRange(0),
    help="Highest cluster version that a raise may reach; 0: no limit.",
)
@output_option("cluster_service_pb2.ClusterSettings")
@cluster_options
def settings(*, output: str, target: str | None, timeout: float, **given: object) -> None:
    """Show the settings of the cluster, and change some.

    A change applies to all given settings or to none.
    """
    from taskraft.cli.output import show_duration, to_value, write, write_table

    changes = {name: wish for name, wish in given.items() if wish is not None}
    with connect(target, timeout) as client:
        in_force = client.configure(**changes)  # type: ignore[arg-type]  # the options are named alike
    if write([in_force], output):
        return
    rows = [
        (
            name.removesuffix("_ms"),
            show_duration(int(str(value))) if name.endswith("_ms") else value,
        )
        for name, value in sorted(to_value(in_force).items())
    ]
    write_table(("SETTING", "VALUE"), rows)


@cluster.command(epilog=examples("taskraft cluster audit --name billing --limit 20"))
@click.option("--principal", default="", help="Only acts of this principal.")
@click.option("--call", default="", help="Only calls of this method, for example DropTube.")
@click.option("--name", default="", help="Only acts on this tube, or * for the cluster.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Maximum number of acts.",
)
@output_option("cluster_service_pb2.AuditRecord")
@cluster_options
def audit(
    *,
    principal: str,
    call: str,
    name: str,
    limit: int,
    output: str,
    target: str | None,
    timeout: float,
) -> None:
    """Show the acts of management, newest first.

    An act is a call that needs the role admin, for example a change of a tube or of the members.
    The cluster keeps the last 100 000 acts, for 90 days. You see the acts on names that you may
    manage.
    """
    from taskraft.cli.output import show_instant, write, write_table
    from taskraft.v1.error_pb2 import Error

    with connect(target, timeout) as client:
        found = client.audit(principal=principal, call=call, name=name, limit=limit)
    if write(found, output):
        return
    rows = [
        (
            show_instant(each.at_ms),
            each.principal or "-",
            each.call,
            ", ".join(each.names),
            each.tasks or "-",
            Error.Reason.Name(each.refused) if each.refused else "-",
            each.detail,
        )
        for each in found
    ]
    write_table(("TIME", "PRINCIPAL", "CALL", "NAMES", "TASKS", "REFUSED", "DETAIL"), rows)


@cluster.command(epilog=examples("taskraft cluster caller"))
@output_option("cluster_service_pb2.GetCallerResponse")
@cluster_options
def caller(*, output: str, target: str | None, timeout: float) -> None:
    """Show your principal and its grants."""
    from taskraft.cli.output import write, write_table

    with connect(target, timeout) as client:
        found = client.caller()
    if write([found], output):
        return
    click.echo(f"principal: {found.principal or '- (the cluster has no access control)'}")
    write_table(("ROLE", "TUBES"), [(one.role, ", ".join(one.tubes)) for one in found.grants])
