"""The command ``taskraft cluster``: show and change settings and members of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskraft.cli.options import (
    DURATION,
    ExtensibleGroup,
    cluster_options,
    confirm,
    connect,
    examples,
    must_ask,
    output_option,
    yes_option,
)
from taskraft.cli.watch import watch_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from taskraft.v1.cluster_service_pb2 import Member


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
    """Show the members with their log progress and clocks.

    CLOCK is the wall clock of a member minus the wall clocks of a majority of the voters. VERSIONS
    are the cluster versions that the release of a member speaks.
    """
    from taskraft.cli.output import write, write_table
    from taskraft.v1.cluster_service_pb2 import Member, NodeState

    with connect(target, timeout) as client:
        state = client.cluster_state()
        if state.leader_address and state.leader != state.node:
            # This call goes to the leader, which knows the progress of all members.
            state = client.cluster_state()
    if write([state], output):
        return
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
            )
        )
    titles = ("ID", "NODE", "ROLE", "ADDRESS", "MATCH", "LAG", "ACTIVE", "VERSIONS", "CLOCK")
    write_table(titles, rows)
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


@cluster.command(epilog=examples("taskraft cluster upgrade"))
@output_option("cluster_service_pb2.UpgradeClusterResponse")
@cluster_options
def upgrade(*, output: str, target: str | None, timeout: float) -> None:
    """Raise the cluster version now, before the end of the hold.

    All members must speak the new version. Afterwards, the previous release can no longer be
    started on the data of the nodes.
    """
    from taskraft.cli.output import write
    from taskraft.v1.cluster_service_pb2 import UpgradeClusterResponse

    with connect(target, timeout) as client:
        version = client.upgrade_cluster()
    if not write([UpgradeClusterResponse(cluster_version=version)], output):
        click.echo(f"cluster version {version}")


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


@cluster.command(epilog=examples("taskraft cluster sessions -o json"))
@watch_option
@output_option("session_service_pb2.Session")
@cluster_options
def sessions(*, output: str, target: str | None, timeout: float) -> None:
    """Show the sessions, and the number of tasks that each holds.

    The list shows only the first characters of each session id, because a full session id lets
    anyone act for that session.
    """
    from taskraft.cli.output import show_duration, write, write_table

    with connect(target, timeout) as client:
        found = client.list_sessions()
    if write(found, output):
        return
    rows = [
        (each.session_id, each.name, each.owner or "-", each.taken, show_duration(each.ttr_ms))
        for each in found
    ]
    write_table(("SESSION", "NAME", "OWNER", "TAKEN", "TTR"), rows)


@cluster.command(epilog=examples("taskraft cluster leases 3f2a9c01"))
@click.argument("session")
@watch_option
@output_option("task_pb2.Task")
@cluster_options
def leases(*, session: str, output: str, target: str | None, timeout: float) -> None:
    """Show the tasks that a session holds, in all tubes.

    SESSION is the id of the session, or its first 8 characters as `taskraft cluster sessions`
    shows them.
    """
    from taskraft.cli.output import show_instant, write, write_table

    with connect(target, timeout) as client:
        held = client.list_leases(session)
    if write([each.message for each in held], output):
        return
    rows = [
        (
            str(each),
            each.attempt,
            show_instant(each.message.since_ms),
            show_instant(each.lease_until_ms) if each.lease_until_ms else "with the session",
            each.token,
        )
        for each in held
    ]
    write_table(("ID", "ATTEMPT", "TAKEN", "LEASE UNTIL", "TOKEN"), rows)


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


@cluster.command(epilog=examples("taskraft cluster add n4 10.0.0.4:7402 10.0.0.4:7401"))
@click.argument("name")
@click.argument("peer_address")
@click.argument("address")
@output_option("cluster_service_pb2.Member")
@cluster_options
def add(
    *, name: str, peer_address: str, address: str, output: str, target: str | None, timeout: float
) -> None:
    """Add a member as a learner, without a vote.

    NAME is the name of the member, PEER_ADDRESS the address for the other members, ADDRESS the
    address for clients. Afterwards start the node with `taskraft serve --join`, and promote the
    member once it has caught up.
    """
    from taskraft.cli.output import write

    with connect(target, timeout) as client:
        member = client.add_member(name, peer_address, address)
    if not write([member], output):
        click.echo(f"added {name} as member {member.id}; start its node with --join")


@cluster.command(epilog=examples("taskraft cluster admit n4"))
@click.argument("name")
@output_option("cluster_service_pb2.Member")
@cluster_options
def admit(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Admit a member whose node has added itself.

    The leader then believes the node when it forwards a call of a client with a certificate.
    """
    from taskraft.cli.output import write

    with connect(target, timeout) as client:
        found = next((one for one in client.cluster_state().members if one.name == name), None)
        if found is None:
            raise click.ClickException(f'there is no member "{name}"; add it with `cluster add`')
        member = client.add_member(name, found.peer_address, found.address)
    if not write([member], output):
        click.echo(f"{name} is admitted")


@cluster.command(epilog=examples("taskraft cluster promote n4"))
@click.argument("name")
@output_option("cluster_service_pb2.Member")
@cluster_options
def promote(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Make a learner a voter, once it has caught up."""
    from taskraft.cli.output import write

    with connect(target, timeout) as client:
        member = client.promote_member(name)
    if not write([member], output):
        click.echo(f"{name} is a voter")


@cluster.command(epilog=examples("taskraft cluster remove n4 --yes"))
@click.argument("name")
@yes_option
@output_option("cluster_service_pb2.RemoveMemberResponse")
@cluster_options
def remove(*, name: str, yes: bool, output: str, target: str | None, timeout: float) -> None:
    """Remove a member permanently.

    Its node stops, and its data directory cannot be used again.
    """
    from taskraft.cli.output import write
    from taskraft.v1.cluster_service_pb2 import RemoveMemberResponse

    with connect(target, timeout) as client:
        if must_ask(yes=yes):
            confirm(f"Remove the member {name} permanently?")
        client.remove_member(name)
    if not write([RemoveMemberResponse()], output):
        click.echo(f"removed {name}")


@cluster.command(epilog=examples("taskraft cluster transfer", "taskraft cluster transfer n2"))
@click.argument("name", default="")
@output_option("cluster_service_pb2.TransferLeadershipResponse")
@cluster_options
def transfer(*, name: str, output: str, target: str | None, timeout: float) -> None:
    """Transfer leadership to NAME.

    Default: the most up-to-date voter.
    """
    from taskraft.cli.output import write
    from taskraft.v1.cluster_service_pb2 import TransferLeadershipResponse

    with connect(target, timeout) as client:
        leader = client.transfer_leadership(name)
    if not write([TransferLeadershipResponse(leader=leader)], output):
        click.echo(f"leader {leader or 'unknown'}")
