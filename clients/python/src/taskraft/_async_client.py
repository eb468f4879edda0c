"""The client for asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

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

    The client connects on the first call and sends each call to the leader. It retries an
    unanswered call with the same request_id until the deadline of the call, and it sends concurrent
    calls in one message. The client belongs to the event loop that uses it first. Use the client as
    a context manager, or call `close`.
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
        """Configure the client without connecting.

        Args:
            target: addresses of some or all nodes, "host:port,host:port". Default: the variable
                TASKRAFT_TARGET, else 127.0.0.1:7401.
            timeout: default time limit of each call, retries included.
            name: name of the sessions, shown to people; default: host name and process id.
            session_ttr: how long the leases survive after this process or its connection is lost.
            credentials: gRPC credentials, instead of `access`.
            **access: certificates and token, see `AccessOptions`; default: TASKRAFT_CA and the
                related variables.

        Raises:
            CredentialsUnusable: the options do not fit together, or a file cannot be read.
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
        """Close subscriptions and the session; their tasks are released and can be taken again."""
        await self._connection.close()

    # ----------------------------------------------------------------------------- tasks

    def tube(self, name: str) -> AsyncTube:
        """Return a handle of a tube without calling the server."""
        return AsyncTube(name, self._connection)

    def subscribe(
        self, tubes: TubeSources, **options: Unpack[SubscribeOptions]
    ) -> AsyncSubscription:
        """Return a subscription to the tasks of one or several tubes.

        Args:
            tubes: a name or pattern, several of these, or names with their weights.
            **options: see `SubscribeOptions`.
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
        """Take up to `tasks_max` tasks from one or several tubes.

        The call waits only until the first task is READY.
        """
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
        """Settle leases by their tokens; the default action is to acknowledge.

        Raises:
            LeaseStale: the single lease has ended.
            ItemsRefused: some of several leases have ended; the other leases are settled.
        """
        self._connection.check_usable()
        chosen = [tokens] if isinstance(tokens, int) else list(tokens)
        if not all(isinstance(token, int) for token in chosen):
            raise wrong_type("tokens", "an integer or several integers", tokens)
        items = [(token, action or _settlement.PLAIN_ACK) for token in chosen]
        outcomes = await self._connection.settler.settle_items(items, timeout)
        for (token, _), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, errors.TaskraftError):
                outcome.args = (f"token {token}: {outcome.message}",)
        raise_refused(outcomes)

    async def execute(
        self, batch: Batch, *, timeout: Duration | None = None
    ) -> list[task_service_pb2.BatchResult]:
        """Execute the operations of a batch atomically; return one result per operation.

        Tasks that the batch settles count as settled: leaving their `async with` block does
        nothing.

        Raises:
            TaskraftError: nothing was executed; the metadata `operation` and `item` name the failed
                part.
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
        """Trace a batch; yields one list per put, to which the caller adds the new task ids."""
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
        """Yield one event per task transition, in order within each partition.

        Args:
            tubes: names of tubes; default: all.
            kinds: kinds of events, for example `["ACK", "BURY"]`; default: all.
            from_start: start at the oldest event that is kept, instead of now.
            cursor: next sequence number to read, by partition.
            follow: wait for new events, instead of stopping at the current end of the feed.

        Raises:
            CursorTrimmed: retention has removed the events at the cursor.
        """
        return _change_feed.tail(
            self._connection,
            tubes=texts("tubes", tubes),
            kinds=texts("kinds", kinds),
            is_from_start=from_start,
            cursor=cursor,
            follow=follow,
        )
