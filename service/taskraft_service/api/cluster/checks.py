"""Check membership changes: the request, and whether the cluster keeps a quorum."""

from __future__ import annotations

import re
from typing import Final

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import MemberId, MemberInfo
from taskraft_replication.node.status import NodeStatus
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.config.addresses import ConfigInvalid, port_of
from taskraft_service.limits import NAME_BYTES_MAX

PROMOTION_LAG_ENTRIES_MAX: Final = 100
"""Maximum lag of a learner, in entries, for its promotion; a lagging voter tolerates no failure."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{NAME_BYTES_MAX}}}")
_DIRECTORY: Final = re.compile(r"[0-9a-f]{0,64}")


def check_add_member(request: pb.AddMemberRequest, cluster_id: str) -> None:
    """Check a request to add a member.

    Raises:
        CallRefused: INVALID_FIELD with all violations.
    """
    violations = Violations()
    if not _NAME.fullmatch(request.name):
        violations.add("name", f"not 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 _ . -")
    for path, address in (
        ("peer_address", request.peer_address),
        ("address", request.address),
    ):
        try:
            port_of(address)
        except ConfigInvalid as error:
            violations.add(path, str(error))
    if not _DIRECTORY.fullmatch(request.directory_id):
        violations.add("directory_id", "not the id of a data directory")
    if request.cluster_id not in ("", cluster_id):
        violations.add("cluster_id", f'the id of this cluster is "{cluster_id}"')
    violations.check_request_id(request.request_id)
    violations.raise_if_any()


def check_request_id(request_id: str) -> None:
    """Check the length of a request_id.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request_id)
    violations.raise_if_any()


def check_caught_up(status: NodeStatus, info: MemberInfo) -> None:
    """Check that a learner has caught up and can take part in the next commit.

    Raises:
        CallRefused: NODE_BEHIND.
    """
    progress = status.peers.get(info.member)
    lag = status.last if progress is None else progress.lag_entries
    answers = progress is not None and progress.is_active
    follows = progress is not None and progress.state is ProgressState.REPLICATE
    if not info.directory_id or not answers or not follows or lag > PROMOTION_LAG_ENTRIES_MAX:
        state = f"{lag} entries behind" if follows else "not following the log yet"
        state = state if answers else "not answering"
        state = state if info.directory_id else "not started: its node has not joined"
        raise CallRefused(
            error_pb2.Error.NODE_BEHIND,
            f'"{info.name}" is {state}: it must catch up before it votes',
            {"name": info.name, "lag_entries": str(lag)},
        )


def refused_without_quorum(status: NodeStatus, member: MemberId) -> CallRefused | None:
    """Return the refusal to remove ``member`` if the other voters would have no quorum."""
    if member not in status.conf_state.voters:
        return None
    rest = [voter for voter in status.conf_state.voters if voter != member]
    answering = [voter for voter in rest if _answers(status, voter)]
    if 2 * len(answering) > len(rest):
        return None
    return CallRefused(
        error_pb2.Error.MEMBER_NEEDED,
        f"only {len(answering)} of the {len(rest)} remaining voters answer: "
        f"the cluster would lose its quorum; restore other voters first",
        {"voters": str(len(rest)), "answering": str(len(answering))},
    )


def _answers(status: NodeStatus, member: MemberId) -> bool:
    peer = status.peers.get(member)
    return member == status.member_id or (peer is not None and peer.is_active)
