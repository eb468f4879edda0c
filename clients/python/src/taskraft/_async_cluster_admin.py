"""Look at the cluster, and change its members and settings, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from taskraft._arguments import text
from taskraft._cluster_settings import ClusterSettings, configure_request
from taskraft._durations import Duration
from taskraft._leader_caller import new_request_id
from taskraft.v1 import cluster_service_pb2, session_service_pb2

if TYPE_CHECKING:
    from taskraft._connection import Connection


class AsyncClusterAdmin:
    """The part of a client that is about the cluster as a whole."""

    _connection: Connection

    async def list_sessions(
        self, *, timeout: Duration | None = None
    ) -> list[session_service_pb2.Session]:
        """Return the sessions and how many tasks each holds; their ids are cut short."""
        request = session_service_pb2.ListSessionsRequest()
        pages = self._connection.pages(
            lambda node: node.sessions.ListSessions, request, timeout=timeout
        )
        return [session async for page in pages for session in page.sessions]

    async def configure(
        self, *, timeout: Duration | None = None, **settings: Unpack[ClusterSettings]
    ) -> cluster_service_pb2.ClusterSettings:
        """Change settings of the whole cluster, all or none; return those in force.

        Raises:
            InvalidField: A setting is out of range.
        """
        request = configure_request(settings)
        response = await self._connection.call(
            lambda node: node.cluster.Configure, request, timeout=timeout
        )
        return response.settings

    async def cluster_state(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetClusterStateResponse:
        """Return the members, who leads, and how far each has come."""
        request = cluster_service_pb2.GetClusterStateRequest()
        return await self._connection.call(
            lambda node: node.cluster.GetClusterState, request, timeout=timeout
        )

    async def add_member(
        self, name: str, peer_address: str, address: str, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.Member:
        """Add a member that learns and does not vote yet; return it with its number.

        The node itself is then started with the setting `join`.

        Raises:
            MemberExists: A member of this name has joined.
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
        """Make a member vote; it must have joined and caught up, which is waited for.

        Raises:
            MemberNotFound: There is no member of this name.
            NodeBehind: It has not joined and caught up in time.
        """
        request = cluster_service_pb2.PromoteMemberRequest(
            name=text("name", name), request_id=new_request_id()
        )
        response = await self._connection.call(
            lambda node: node.cluster.PromoteMember, request, timeout=timeout
        )
        return response.member

    async def remove_member(self, name: str, *, timeout: Duration | None = None) -> None:
        """Remove a member for good; its node ends and cannot be started again with its data.

        Raises:
            MemberNotFound: There is no member of this name.
            MemberNeeded: Those who are left could not commit anything.
        """
        request = cluster_service_pb2.RemoveMemberRequest(
            name=text("name", name), request_id=new_request_id()
        )
        await self._connection.call(
            lambda node: node.cluster.RemoveMember, request, timeout=timeout
        )

    async def transfer_leadership(self, name: str = "", *, timeout: Duration | None = None) -> str:
        """Hand leadership over, by default to the voter that has come farthest; return who leads.

        Raises:
            MemberNotFound: There is no member of this name.
        """
        request = cluster_service_pb2.TransferLeadershipRequest(
            name=text("name", name), request_id=new_request_id()
        )
        response = await self._connection.call(
            lambda node: node.cluster.TransferLeadership, request, timeout=timeout
        )
        return response.leader

    async def server_info(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetServerInfoResponse:
        """Return version, limits and features of the node that is asked."""
        request = cluster_service_pb2.GetServerInfoRequest()
        return await self._connection.call(
            lambda node: node.cluster.GetServerInfo, request, timeout=timeout
        )
