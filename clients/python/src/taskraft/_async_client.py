"""The client for asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self, Unpack

from taskraft import _change_feed, _settlement, errors
from taskraft._arguments import Texts, texts, wrong_type
from taskraft._async_cluster_admin import AsyncClusterAdmin
from taskraft._async_subscription import AsyncSubscription, SubscribeOptions
from taskraft._async_tube import AsyncTube
from taskraft._async_tube_admin import AsyncTubeAdmin
from taskraft._connection import SESSION_TTR_DEFAULT, TIMEOUT_DEFAULT, Connection
from taskraft._durations import Duration
from taskraft._groups import AsyncGroups
from taskraft._request_batcher import raise_refused
from taskraft._schedules import AsyncSchedules
from taskraft._take import TakeOptions, take_tasks
from taskraft.credentials import AccessOptions, channel_credentials
from taskraft.v1 import feed_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from types import TracebackType

    import grpc

    from taskraft._async_taken_task import AsyncTakenTask
    from taskraft._batch import Batch
    from taskraft._settlement import Settlement
    from taskraft._take import TubeSources
    from taskraft.v1 import task_service_pb2


class AsyncClient(AsyncTubeAdmin, AsyncClusterAdmin):
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

    def subscribe(
        self, tubes: TubeSources, **options: Unpack[SubscribeOptions]
    ) -> AsyncSubscription:
        """Return the tasks of one or several tubes as they become ready.

        Args:
            tubes: A name or pattern, several, or names with their shares.
            **options: See `SubscribeOptions`.
        """
        return AsyncSubscription(self._connection, tubes, options)

    async def take_many(
        self,
        tubes: TubeSources,
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
        self._connection.check_usable()
        chosen = [tokens] if isinstance(tokens, int) else list(tokens)
        if not all(isinstance(token, int) for token in chosen):
            raise wrong_type("tokens", "a number, or several", tokens)
        items = [(token, action or _settlement.PLAIN_ACK) for token in chosen]
        outcomes = await self._connection.settler.settle_items(items, timeout)
        for (token, _), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, errors.TaskraftError):
                outcome.args = (f"token {token}: {outcome.message}",)
        raise_refused(outcomes)

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

    # ---------------------------------------------------------------------- change feed

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
        return _change_feed.tail(
            self._connection,
            tubes=texts("tubes", tubes),
            kinds=texts("kinds", kinds),
            is_from_start=from_start,
            cursor=cursor,
            follow=follow,
        )
