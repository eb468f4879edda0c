"""The commands ``taskraft cluster add``, ``admit``, ``promote``, ``remove`` and ``transfer``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from taskraft.cli.cluster import cluster, state_of_leader
from taskraft.cli.confirmation import Confirmation, destroys
from taskraft.cli.names import MEMBER
from taskraft.cli.options import cluster_options, connect, examples, output_option
from taskraft.cli.output_shape import fields

if TYPE_CHECKING:
    from taskraft import Client

__all__ = ["cluster"]


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
@click.argument("name", type=MEMBER)
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
@click.argument("name", type=MEMBER)
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
@click.argument("name", type=MEMBER)
@output_option(
    "cluster_service_pb2.RemoveMemberResponse",
    preview=fields("dry_run", "name", "voters", "can_lose"),
)
@destroys("A removed member cannot return.")
@cluster_options
def remove(
    *, name: str, confirmation: Confirmation, output: str, target: str | None, timeout: float
) -> None:
    """Remove a member permanently.

    Its node stops, and its data directory cannot be used again.
    """
    from taskraft.cli.output import write
    from taskraft.v1.cluster_service_pb2 import RemoveMemberResponse

    with connect(target, timeout) as client:
        if not confirmation.allows(
            lambda: f"{_rest(client, name).text}. Remove the member {name} permanently?",
            lambda: _preview(name, _rest(client, name), output),
        ):
            return
        client.remove_member(name)
    if not write([RemoveMemberResponse()], output):
        click.echo(f"removed {name}")


class RemainingVoters(NamedTuple):
    """The voters after the removal of a member."""

    voters: int
    can_lose: int
    """Number of voters that can stop before the cluster stops."""

    @property
    def text(self) -> str:
        """The numbers in one sentence, without its full stop."""
        remaining = (
            "1 voter remains, and tolerates"
            if self.voters == 1
            else (f"{self.voters} voters remain, and tolerate")
        )
        return f"{remaining} {self.can_lose} down"


def _rest(client: Client, name: str) -> RemainingVoters:
    """Return what remains of the voters without a member.

    Raises:
        click.ClickException: there is no such member.
    """
    from taskraft.v1.cluster_service_pb2 import Member

    state = state_of_leader(client)
    if all(member.name != name for member in state.members):
        raise click.ClickException(f'there is no member "{name}"')
    voters = [
        member
        for member in state.members
        if member.suffrage == Member.VOTER and member.name != name
    ]
    up = sum(member.leader or member.active or not state.leader for member in voters)
    return RemainingVoters(len(voters), max(up - (len(voters) // 2 + 1), 0))


def _preview(name: str, rest: RemainingVoters, output: str) -> None:
    """Print what remains of the voters without a member."""
    from taskraft.cli.output import write_values

    value = {"dry_run": True, "name": name, "voters": rest.voters, "can_lose": rest.can_lose}
    if not write_values([value], output):
        click.echo(f"{name} would be removed: {rest.text}")


@cluster.command(epilog=examples("taskraft cluster transfer", "taskraft cluster transfer n2"))
@click.argument("name", type=MEMBER, default="")
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
