"""Methods of `AsyncClient` for sessions, settings and members of the cluster."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final, Unpack

import grpc.aio

from taskraft._arguments import text
from taskraft._cluster_settings import ClusterSettings, configure_request
from taskraft._durations import Duration
from taskraft._leader_caller import new_request_id
from taskraft._task import Task
from taskraft.v1 import cluster_service_pb2, session_service_pb2

if TYPE_CHECKING:
    from taskraft._connection import Connection


AUDIT_PAGE_MAX: Final = 1_000


class AsyncClusterAdmin:
    """The methods of `AsyncClient` that concern the whole cluster."""

    _connection: Connection

    async def list_sessions(
        self, *, timeout: Duration | None = None
    ) -> list[session_service_pb2.Session]:
        """Return the sessions with the number of tasks that each holds; the ids are truncated."""
        request = session_service_pb2.ListSessionsRequest()
        pages = self._connection.pages(
            lambda node: node.sessions.ListSessions, request, timeout=timeout
        )
        return [session async for page in pages for session in page.sessions]

    async def session(
        self, session_id: str, *, timeout: Duration | None = None
    ) -> session_service_pb2.Session:
        """Return one session; its id is truncated.

        Args:
            session_id: id of the session, or its first 8 characters as `list_sessions` returns
                them.
            timeout: time limit, retries included.

        Raises:
            SessionNotFound: there is no such session, or it belongs to another principal.
        """
        request = session_service_pb2.ListLeasesRequest(
            session_id=text("session_id", session_id), page_size=1
        )
        response = await self._connection.call(
            lambda node: node.sessions.ListLeases, request, timeout=timeout
        )
        return response.session

    async def list_leases(self, session_id: str, *, timeout: Duration | None = None) -> list[Task]:
        """Return the tasks that a session holds, in all tubes, in the order of their takes.

        Args:
            session_id: id of the session, or its first 8 characters as `list_sessions` returns
                them.
            timeout: time limit of each call, retries included.

        Raises:
            SessionNotFound: there is no such session, or it belongs to another principal.
        """
        request = session_service_pb2.ListLeasesRequest(session_id=text("session_id", session_id))
        pages = self._connection.pages(
            lambda node: node.sessions.ListLeases, request, timeout=timeout
        )
        return [Task(message) async for page in pages for message in page.tasks]

    async def caller(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetCallerResponse:
        """Return the principal of this client and its grants, from the node that answers."""
        request = cluster_service_pb2.GetCallerRequest()
        return await self._connection.call(
            lambda node: node.cluster.GetCaller, request, timeout=timeout
        )

    async def audit(
        self,
        *,
        principal: str = "",
        call: str = "",
        name: str = "",
        limit: int = 100,
        timeout: Duration | None = None,
    ) -> list[cluster_service_pb2.AuditRecord]:
        """Return the last acts of management, each with its principal and effect, newest first.

        Args:
            principal: only acts of this principal.
            call: only calls of this method, for example "DropTube".
            name: only acts on this tube, group or schedule; "*": on the cluster.
            limit: maximum number of acts.
            timeout: time limit, retries included.
        """
        request = cluster_service_pb2.ListAuditRequest(
            principal=text("principal", principal),
            call=text("call", call),
            name=text("name", name),
            page_size=min(limit, AUDIT_PAGE_MAX),
        )
        found: list[cluster_service_pb2.AuditRecord] = []
        pages = self._connection.pages(
            lambda node: node.cluster.ListAudit, request, timeout=timeout
        )
        async for page in pages:
            found += page.records
            if len(found) >= limit:
                break
        return found[:limit]

    async def configure(
        self, *, timeout: Duration | None = None, **settings: Unpack[ClusterSettings]
    ) -> cluster_service_pb2.ClusterSettings:
        """Change settings of the cluster, all or none; return the settings in force.

        Raises:
            InvalidField: a setting is out of range.
        """
        request = configure_request(settings)
        response = await self._connection.call(
            lambda node: node.cluster.Configure, request, timeout=timeout
        )
        return response.settings

    async def cluster_state(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetClusterStateResponse:
        """Return the members, the leader, and the log progress of each member."""
        request = cluster_service_pb2.GetClusterStateRequest()
        return await self._connection.call(
            lambda node: node.cluster.GetClusterState, request, timeout=timeout
        )

    async def node_states(
        self, *, timeout: Duration | None = None
    ) -> dict[str, cluster_service_pb2.GetClusterStateResponse]:
        """Return the state of each node as the node itself tells it; a silent node is left out.

        Args:
            timeout: time limit of the call for the members, and of the calls to all nodes.
        """
        members = (await self.cluster_state(timeout=timeout)).members
        seconds = self._connection.deadline(timeout) - monotonic()
        answers = await asyncio.gather(
            *(self._node_state(member.address, seconds) for member in members)
        )
        return {answer.node: answer for answer in answers if answer is not None}

    async def _node_state(
        self, address: str, seconds: float
    ) -> cluster_service_pb2.GetClusterStateResponse | None:
        """Ask one node; None: no answer."""
        request = cluster_service_pb2.GetClusterStateRequest()
        node = self._connection.nodes.at(address)
        try:
            return await node.cluster.GetClusterState(request, timeout=seconds)
        except grpc.aio.AioRpcError:
            return None

    async def add_member(
        self, name: str, peer_address: str, address: str, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.Member:
        """Add a member as a learner, without a vote; return the member with its id.

        Then start the node of the member with the setting `join`.

        Raises:
            MemberExists: a member with this name has already joined.
        """
        request = cluster_service_pb2.AddMemberRequest(
            name=text("name", name),
            peer_address=text("peer_address", peer_address),
            address=text("address", address),
            request_id=new_request_id(),
        )
        response = await self._connection.call(
            lambda node: node.cluster.AddMember, request, timeout=timeout
        )
        return response.member

    async def promote_member(
        self, name: str, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.Member:
        """Make a learner a voter; the call waits until the learner has joined and caught up.

        Raises:
            MemberNotFound: no member has this name.
            NodeBehind: the learner has not joined and caught up in time.
        """
        request = cluster_service_pb2.PromoteMemberRequest(
            name=text("name", name), request_id=new_request_id()
        )
        response = await self._connection.call(
            lambda node: node.cluster.PromoteMember, request, timeout=timeout
        )
        return response.member

    async def remove_member(self, name: str, *, timeout: Duration | None = None) -> None:
        """Remove a member permanently; its node stops and cannot rejoin with its data directory.

        Raises:
            MemberNotFound: no member has this name.
            MemberNeeded: the remaining members could not form a working majority.
        """
        request = cluster_service_pb2.RemoveMemberRequest(
            name=text("name", name), request_id=new_request_id()
        )
        await self._connection.call(
            lambda node: node.cluster.RemoveMember, request, timeout=timeout
        )

    async def transfer_leadership(self, name: str = "", *, timeout: Duration | None = None) -> str:
        """Transfer leadership and return the new leader; default: to the most up-to-date voter.

        Raises:
            MemberNotFound: no member has this name.
        """
        request = cluster_service_pb2.TransferLeadershipRequest(
            name=text("name", name), request_id=new_request_id()
        )
        response = await self._connection.call(
            lambda node: node.cluster.TransferLeadership, request, timeout=timeout
        )
        return response.leader

    async def upgrade_cluster(self, *, timeout: Duration | None = None) -> int:
        """Raise the cluster version now, without the rest of the hold; return the version in force.

        Afterwards, the previous release can no longer be started on the data of the nodes.

        Raises:
            VersionTooLow: a member does not answer or speaks no higher version.
        """
        request = cluster_service_pb2.UpgradeClusterRequest(request_id=new_request_id())
        response = await self._connection.call(
            lambda node: node.cluster.UpgradeCluster, request, timeout=timeout
        )
        return response.cluster_version

    async def server_info(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetServerInfoResponse:
        """Return version, limits and features of the node that answers."""
        request = cluster_service_pb2.GetServerInfoRequest()
        return await self._connection.call(
            lambda node: node.cluster.GetServerInfo, request, timeout=timeout
        )
