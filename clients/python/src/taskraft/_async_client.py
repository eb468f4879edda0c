"""The client for asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self, Unpack

from taskraft import _feed, _settlement
from taskraft._async_tube import AsyncTube
from taskraft._calls import new_request_id
from taskraft._connection import SESSION_TTR_DEFAULT, TIMEOUT_DEFAULT, Connection
from taskraft._durations import Duration
from taskraft._groups import AsyncGroups
from taskraft._joiner import raise_refused
from taskraft._options import Texts, texts
from taskraft._schedules import AsyncSchedules
from taskraft._settings import ClusterSettings, configure_request
from taskraft._subscription import AsyncSubscription, SubscribeOptions
from taskraft._taking import TakeOptions, take_tasks
from taskraft._tubes import Kind, TubeSettings, create_request, update_request
from taskraft.credentials import AccessOptions, channel_credentials
from taskraft.v1 import (
    cluster_service_pb2,
    feed_service_pb2,
    session_service_pb2,
    tube_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from types import TracebackType

    import grpc

    from taskraft._batch import Batch
    from taskraft._settlement import Settlement
    from taskraft._sources import Sources
    from taskraft._taken import AsyncTakenTask
    from taskraft.v1 import task_service_pb2


class AsyncClient:
    """Put, take and settle tasks with asyncio.

    It connects with the first call, follows the leader, repeats what was not answered with the same
    request_id until the time of the call is over, and joins concurrent calls into one message. It
    belongs to the event loop that uses it first. Use it as a context, or call `close`.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout: Duration = TIMEOUT_DEFAULT,
        name: str | None = None,
        session_ttr: Duration = SESSION_TTR_DEFAULT,
        credentials: grpc.ChannelCredentials | None = None,
        **access: Unpack[AccessOptions],
    ) -> None:
        """Describe the cluster; nothing is connected yet.

        Args:
            target: Addresses of some or all nodes, "host:port,host:port"; absent the variable
                TASKRAFT_TARGET, or else 127.0.0.1:7401.
            timeout: How long each call is tried.
            name: Shown to people who look at sessions; host and process by default.
            session_ttr: How long leases outlive this process or its connection.
            credentials: Ready-made ones, in place of `access`.
            **access: Certificates and token, see `AccessOptions`; absent TASKRAFT_CA and its like.

        Raises:
            CredentialsUnusable: They do not belong together or cannot be read.
        """
        self._connection = Connection(
            target,
            timeout=timeout,
            name=name,
            session_ttr=session_ttr,
            credentials=credentials or channel_credentials(**access),
        )
        self.groups = AsyncGroups(self._connection)
        self.schedules = AsyncSchedules(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close subscriptions and the session; what they hold is handed out again."""
        await self._connection.close()

    # ----------------------------------------------------------------------------- tasks

    def tube(self, name: str) -> AsyncTube:
        """Return a handle of a tube; the server is not asked."""
        return AsyncTube(name, self._connection)

    def subscribe(self, tubes: Sources, **options: Unpack[SubscribeOptions]) -> AsyncSubscription:
        """Return the tasks of one or several tubes as they become ready.

        Args:
            tubes: A name or pattern, several, or names with their shares.
            **options: See `SubscribeOptions`.
        """
        return AsyncSubscription(self._connection, tubes, options)

    async def take_many(
        self,
        tubes: Sources,
        tasks_max: int = 1,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[AsyncTakenTask]:
        """Take up to `tasks_max` tasks from one or several tubes; wait only for the first."""
        return await take_tasks(
            self._connection, tubes, tasks_max, wait=wait, timeout=timeout, options=options
        )

    async def settle(
        self,
        tokens: int | Iterable[int],
        action: Settlement | None = None,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Settle leases by their tokens alone; without an action they are acknowledged.

        Raises:
            LeaseStale: The lease is over.
            ItemsRefused: Some of several leases are over; the others are settled.
        """
        self._connection.use()
        chosen = [tokens] if isinstance(tokens, int) else tokens
        items = [(token, action or _settlement.PLAIN_ACK) for token in chosen]
        raise_refused(await self._connection.leases.settle_items(items, timeout))

    async def execute(
        self, batch: Batch, *, timeout: Duration | None = None
    ) -> list[task_service_pb2.BatchResult]:
        """Do the operations of a batch, all or none; return one result for each.

        Tasks that it settles count as settled: the end of their block does nothing more.

        Raises:
            TaskraftError: Nothing was done; the metadata `operation` and `item` name the cause.
        """
        request = batch.request()
        with self._traced(request, batch) as sent:
            response = await self._connection.call(
                lambda node: node.tasks.ExecuteBatch, request, timeout=timeout
            )
            done = [one.put.task_ids for one in response.results if one.HasField("put")]
            for ids, given in zip(sent, done, strict=False):
                ids.extend(given)
        batch.done()
        return list(response.results)

    def _traced(
        self, request: task_service_pb2.ExecuteBatchRequest, batch: Batch
    ) -> AbstractContextManager[list[list[int]]]:
        """Return the spans of a batch, which name the ids that are added for each of its puts."""
        puts = [one.put for one in request.operations if one.HasField("put")]
        spans = self._connection.spans
        return nullcontext([]) if spans is None else spans.batch(puts, batch.settled)

    # ----------------------------------------------------------------------------- tubes

    async def create_tube(
        self,
        name: str,
        kind: Kind = "fifottl",
        *,
        driver: str = "",
        if_not_exists: bool = False,
        profile: str = "",
        timeout: Duration | None = None,
        **settings: Unpack[TubeSettings],
    ) -> tube_service_pb2.Tube:
        """Create a tube and return it as it is now.

        Args:
            name: 1 to 128 letters, digits, "_", "-", "." and ":".
            kind: What it does besides strict order.
            driver: With the kind "custom": which of the drivers that the server has.
            if_not_exists: Return the existing tube if there is one of this name.
            profile: Defaults of an older system: "tarantool", "xqueue", "t15" or "rsqueue".
            timeout: How long to try.
            **settings: See `TubeSettings`.

        Raises:
            TubeExists: There is one of this name.
        """
        request = create_request(
            name,
            kind,
            driver=driver,
            if_not_exists=if_not_exists,
            profile=profile,
            settings=settings,
        )
        response = await self._connection.call(
            lambda node: node.tubes.CreateTube, request, timeout=timeout
        )
        return response.tube

    async def update_tube(
        self,
        name: str,
        *,
        reset: Texts = (),
        timeout: Duration | None = None,
        **settings: Unpack[TubeSettings],
    ) -> tube_service_pb2.Tube:
        """Change options of a tube while it is in use, all or none; return it as it is now.

        Args:
            name: Of the tube.
            reset: Options that get back their default.
            timeout: How long to try.
            **settings: See `TubeSettings`.

        Raises:
            InvalidField: An option is fixed, or out of range.
            TubeBusy: An option can change only while the tube is empty.
        """
        request = update_request(name, reset=reset, settings=settings)
        response = await self._connection.call(
            lambda node: node.tubes.UpdateTube, request, timeout=timeout
        )
        return response.tube

    async def drop_tube(
        self, name: str, *, force: bool = False, timeout: Duration | None = None
    ) -> int:
        """Remove a tube and return how many tasks went with it.

        Raises:
            TubeBusy: Tasks are taken or consumers wait, and `force` is not set.
        """
        request = tube_service_pb2.DropTubeRequest(
            request_id=new_request_id(), name=name, force=force
        )
        response = await self._connection.call(
            lambda node: node.tubes.DropTube, request, timeout=timeout
        )
        return response.tasks

    async def truncate_tube(self, name: str, *, timeout: Duration | None = None) -> int:
        """Remove all tasks of a tube and return how many."""
        request = tube_service_pb2.TruncateTubeRequest(request_id=new_request_id(), name=name)
        response = await self._connection.call(
            lambda node: node.tubes.TruncateTube, request, timeout=timeout
        )
        return response.tasks

    async def list_tubes(
        self, names: Texts = (), *, timeout: Duration | None = None
    ) -> list[tube_service_pb2.Tube]:
        """Return the tubes whose names fit one of the patterns, or all, by name."""
        tubes: list[tube_service_pb2.Tube] = []
        request = tube_service_pb2.ListTubesRequest(names=texts(names))
        while True:
            page = await self._connection.call(
                lambda node: node.tubes.ListTubes, request, timeout=timeout
            )
            tubes += page.tubes
            if not page.next_page_token:
                return tubes
            request.page_token = page.next_page_token

    async def stats(
        self,
        tubes: Texts = (),
        *,
        transitions: bool = False,
        timeout: Duration | None = None,
    ) -> tube_service_pb2.GetStatisticsResponse:
        """Return how many tasks are in each state by tube, and their sum.

        Args:
            tubes: Names or patterns; what nothing is called is left out. Absent: all.
            transitions: Also how often tasks went from one state to another.
            timeout: How long to try, for each page of 1 000 tubes.
        """
        request = tube_service_pb2.GetStatisticsRequest(tubes=texts(tubes), transitions=transitions)
        counts: list[tube_service_pb2.TubeStatistics] = []
        while True:
            page = await self._connection.call(
                lambda node: node.tubes.GetStatistics, request, timeout=timeout
            )
            counts += page.tubes
            request.page_token = page.next_page_token
            if not page.next_page_token:
                del page.tubes[:]
                page.tubes.extend(counts)
                return page

    # --------------------------------------------------------------------------- cluster

    async def list_sessions(
        self, *, timeout: Duration | None = None
    ) -> list[session_service_pb2.Session]:
        """Return the sessions and how many tasks each holds; their ids are cut short."""
        sessions: list[session_service_pb2.Session] = []
        request = session_service_pb2.ListSessionsRequest()
        while True:
            page = await self._connection.call(
                lambda node: node.sessions.ListSessions, request, timeout=timeout
            )
            sessions += page.sessions
            if not page.next_page_token:
                return sessions
            request.page_token = page.next_page_token

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
            name=name, peer_address=peer_address, address=address, request_id=new_request_id()
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
        request = cluster_service_pb2.PromoteMemberRequest(name=name, request_id=new_request_id())
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
        request = cluster_service_pb2.RemoveMemberRequest(name=name, request_id=new_request_id())
        await self._connection.call(
            lambda node: node.cluster.RemoveMember, request, timeout=timeout
        )

    async def transfer_leadership(self, name: str = "", *, timeout: Duration | None = None) -> str:
        """Hand leadership over, by default to the voter that has come farthest; return who leads.

        Raises:
            MemberNotFound: There is no member of this name.
        """
        request = cluster_service_pb2.TransferLeadershipRequest(
            name=name, request_id=new_request_id()
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

    def changes(
        self,
        tubes: Texts = (),
        *,
        kinds: Texts = (),
        from_start: bool = False,
        cursor: Mapping[int, int] | None = None,
        follow: bool = True,
    ) -> AsyncIterator[feed_service_pb2.ChangeEvent]:
        """Yield one event for each transition of each task, in order within each partition.

        Args:
            tubes: Only of these; all by default.
            kinds: Only of these, for example `["ACK", "BURY"]`; all by default.
            from_start: From the oldest that is left instead of from now.
            cursor: By partition: the next sequence number to read.
            follow: Wait for more instead of ending with what there is.

        Raises:
            CursorTrimmed: Retention has removed what the cursor points to.
        """
        return _feed.tail(
            self._connection,
            tubes=texts(tubes),
            kinds=texts(kinds),
            is_from_start=from_start,
            cursor=cursor,
            follow=follow,
        )
