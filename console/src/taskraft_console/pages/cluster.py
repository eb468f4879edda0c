"""The page of the cluster: the members with their log progress, and changes of the membership."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse, Member, NodeState
from taskraft_console.pages.outage import outage_of
from taskraft_console.pages.overview import active_members, is_active, losable_members
from taskraft_console.pages.page import ChangeForms, FormRefused, PageView, PageVisit, shell_word
from taskraft_console.views.readable import UNKNOWN

if TYPE_CHECKING:
    from taskraft import AsyncClient

LAG_AMBER: Final = 1_000
"""Number of log entries that a member may lack before it is shown as late."""


@dataclass(frozen=True, slots=True)
class MemberLine:
    """One member of the cluster."""

    member: Member
    role: str
    is_active: bool
    lag: int | None
    """Number of log entries that the member lacks; None: not known."""
    node: NodeState | None
    """State as the node itself tells it; None: the node is silent, or has an older version."""
    unknown: str
    """What stands for a number without a node: "not told" by a node of an older version."""
    snapshot_age_ms: int | None
    """Age of the last snapshot that a client has fetched from the node; None: none."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A change of the membership, with its effect."""

    name: str
    member: str
    label: str
    plan: str
    """State of the cluster after the change."""
    forms: ChangeForms
    is_dangerous: bool = False


async def cluster(visit: PageVisit) -> PageView:
    """Show the cluster."""
    state = visit.value(await visit.cluster.state())
    nodes = visit.value(await visit.cluster.nodes())
    if not state.leader:
        visit.outage = await outage_of(visit)
    lines = list(_lines(state, nodes))
    return PageView(
        template="cluster.html",
        title="Cluster",
        values={
            "state": state,
            "phase": NodeState.Phase.Name(state.state.phase),
            "lines": lines,
            "active": active_members(state, nodes),
            "can_lose": losable_members(state, nodes),
            "plans": list(_plans(state)),
            "lag_amber": LAG_AMBER,
        },
    )


def _lines(
    state: GetClusterStateResponse, nodes: Mapping[str, GetClusterStateResponse]
) -> Iterator[MemberLine]:
    leads = state.node == state.leader
    for member in state.members:
        role = "voter" if member.suffrage == Member.Suffrage.VOTER else "learner"
        lag = None
        if leads and not member.leader:
            lag = max(state.state.last_index - member.match_index, 0)
        told = nodes.get(member.name)
        node = told.state if told and told.state.HasField("disk_free_bytes") else None
        age_ms = max(told.now_ms - node.snapshot_ms, 0) if told and node else 0
        yield MemberLine(
            member,
            "leader" if member.leader else role,
            is_active(state, member, nodes),
            lag,
            node,
            UNKNOWN if told is None else "not told",
            age_ms if node and node.snapshot_ms else None,
        )


def _plans(state: GetClusterStateResponse) -> Iterator[MemberPlan]:
    voters = [each for each in state.members if each.suffrage == Member.Suffrage.VOTER]
    for member in state.members:
        word = shell_word(member.name)
        if member.suffrage == Member.Suffrage.LEARNER:
            after = len(voters) + 1
            yield MemberPlan(
                "promote",
                member.name,
                f"Promote {member.name}",
                f"{member.name} becomes a voter once it has caught up. Then {_quorum(after)}.",
                ChangeForms(
                    f"taskraft cluster promote {word}", f"client.promote_member({member.name!r})"
                ),
            )
        elif not member.leader:
            yield MemberPlan(
                "transfer",
                member.name,
                f"Hand leadership to {member.name}",
                f"{state.leader} stops to lead, and {member.name} leads. Calls wait for some "
                "milliseconds; members and data stay.",
                ChangeForms(
                    f"taskraft cluster transfer {word}",
                    f"client.transfer_leadership({member.name!r})",
                ),
            )
        is_voter = member.suffrage == Member.Suffrage.VOTER
        after = len(voters) - is_voter
        if after > 0:
            yield MemberPlan(
                "remove",
                member.name,
                f"Remove {member.name}",
                f"{member.name} stops and cannot come back with its data. Then {_quorum(after)}."
                + (" It leads now, so another voter takes over." if member.leader else ""),
                ChangeForms(
                    f"taskraft cluster remove {word}", f"client.remove_member({member.name!r})"
                ),
                is_dangerous=True,
            )


def _quorum(voters: int) -> str:
    needed = voters // 2 + 1
    noun = "voter" if voters == 1 else "voters"
    return f"the cluster has {voters} {noun}, needs {needed}, and can lose {voters - needed}"


async def change_cluster(
    client: AsyncClient, _: Mapping[str, str], action: str, form: Mapping[str, str]
) -> str:
    """Change the membership or the leader; return a sentence about the change.

    Raises:
        FormRefused: the form is incomplete.
        TaskraftError: the cluster refused the change.
    """
    name = form.get("member", "")
    match action:
        case "transfer":
            return f"{await client.transfer_leadership(name)} leads"
        case "promote":
            return f"{(await client.promote_member(name)).name} is a voter"
        case "remove":
            if form.get("name", "") != name:
                raise FormRefused(f"To remove the member, type its name: {name}")
            await client.remove_member(name)
            return f"{name} is no longer a member"
        case "add":
            values = [form.get(key, "").strip() for key in ("member", "peer_address", "address")]
            if not all(values):
                raise FormRefused("Enter the name and both addresses of the new member.")
            added = await client.add_member(*values)
            return f"{added.name} is a learner; start its node with the setting join"
        case _:
            raise FormRefused(f"there is no change {action!r} of the cluster")
