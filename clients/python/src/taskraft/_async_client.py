"""The client for asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, Self, Unpack

from taskraft import _change_feed, _settlement, _snapshot, errors
from taskraft._arguments import Texts, choice, texts, wrong_type
from taskraft._async_bulk_sweeps import AsyncBulkSweeps
from taskraft._async_cluster_admin import AsyncClusterAdmin
from taskraft._async_subscription import AsyncSubscription, SubscribeOptions
from taskraft._async_tube import AsyncTube
from taskraft._async_tube_admin import AsyncTubeAdmin
from taskraft._connection import SESSION_TTR_DEFAULT, TIMEOUT_DEFAULT, Connection
from taskraft._durations import Duration
from taskraft._error_translation import raise_refused_items, refused_items
from taskraft._groups import AsyncGroups
from taskraft._leader_caller import new_request_id
from taskraft._request_batcher import raise_refused
from taskraft._schedules import AsyncSchedules
from taskraft._take import TakeOptions, take_tasks
from taskraft._task import OUTCOMES, Task
from taskraft.credentials import AccessOptions, channel_credentials
from taskraft.v1 import cluster_service_pb2, feed_service_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from types import TracebackType

    import grpc

    from taskraft._async_taken_task import AsyncTakenTask
    from taskraft._batch import Batch
    from taskraft._node_selector import FailoverHook
    from taskraft._settlement import Settlement
    from taskraft._take import TubeSources


class AsyncClient(AsyncTubeAdmin, AsyncClusterAdmin, AsyncBulkSweeps):
    """Put, take and settle tasks with asyncio.

    The client connects on the first call and sends each call to the leader. It retries an
    unanswered call with the same request_id until the deadline of the call, and it sends concurrent
    calls in one message. The client belongs to the event loop that uses it first. Use the client as
    a context manager, or call `close`.

    A change that is cancelled after it was sent may take effect, at most once. The client gives
    back what a cancelled take has leased, and finishes a cancelled `close` in the background.
    """

    def __init__(  # noqa: PLR0913 - one argument for each option
        self,
        target: str | None = None,
        *,
        timeout: Duration = TIMEOUT_DEFAULT,
        name: str | None = None,
        session_ttr: Duration = SESSION_TTR_DEFAULT,
        client_id: str = "",
        labels: Mapping[str, str] | None = None,
        credentials: grpc.ChannelCredentials | Literal[False] | None = None,
        on_failover: FailoverHook | None = None,
        **access: Unpack[AccessOptions],
    ) -> None:
        """Configure the client without connecting.

        Args:
            target: addresses of some or all nodes, "host:port,host:port". Default: the variable
                TASKRAFT_TARGET, else 127.0.0.1:7401.
            timeout: default time limit of each call, retries included.
            name: name of the sessions, shown to people; default: host name and process id.
            session_ttr: time for which the leases survive after this process or its connection is
                lost.
            client_id: stable name of the application, at most 128 bytes, such as "order-service".
                The server keeps the request_ids of each client_id apart. Set it, equal in all
                processes of the application, if you pass a `request_id` to a call. Default: empty;
                then all clients of the same principal share their request_ids.
            labels: labels of the sessions, shown to people beside the name; at most 1 024 bytes.
                They are added to host, pid, client and version; an empty text removes a label.
            credentials: gRPC credentials, instead of `access`. False: neither TLS nor a token, and
                the environment is ignored.
            on_failover: called with the addresses of the previous and of the new leader when the
                client notices a change of leader. The function runs on the event loop of the client
                and must not block. Calls and subscriptions continue in any case.
            **access: certificates and token, see `AccessOptions`; default: TASKRAFT_CA and the
                related variables.

        Raises:
            CredentialsUnusable: the options contradict each other, or a file cannot be read.
        """
        self._connection = Connection(
            target,
            timeout=timeout,
            name=name,
            session_ttr=session_ttr,
            client_id=client_id,
            labels=labels,
            credentials=(
                channel_credentials(**access) if credentials is None else credentials or None
            ),
            on_failover=on_failover,
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

    @property
    def failovers(self) -> int:
        """Number of changes of the leader that the client has noticed."""
        return self._connection.nodes.selector.failovers

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
    ) -> dict[int, str]:
        """Settle leases by their tokens; the default action is to acknowledge.

        Returns the outcomes by token for releases and rejections that made the task neither READY
        nor DELAYED, as in `AsyncTakenTask.given_up`.

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
        return {
            one.token: OUTCOMES[one.outcome]
            for one in outcomes
            if isinstance(one, _settlement.GivenUpLease)
        }

    async def settle_and_read(
        self,
        tokens: int | Iterable[int],
        action: Settlement | None = None,
        *,
        timeout: Duration | None = None,
    ) -> list[Task]:
        """Settle leases by their tokens, and return the tasks as they are afterwards, in order.

        The tasks have no payload. A removed task has its tube and its id, and after an
        acknowledgement the outcome PROCESSED. If an answer was lost and the call was repeated, the
        task of a lease that had already ended is empty.

        Args:
            tokens: at most 1 000.
            action: a `Settlement` without tokens; default: acknowledge.
            timeout: time limit of the call, retries included.

        Raises:
            LeaseStale: the single lease has ended.
            ItemsRefused: some of several leases have ended; the other leases are settled.
        """
        chosen = [tokens] if isinstance(tokens, int) else list(tokens)
        if not all(isinstance(token, int) for token in chosen):
            raise wrong_type("tokens", "an integer or several integers", tokens)
        request = task_service_pb2.SettleTasksRequest(
            request_id=new_request_id(), return_tasks=True
        )
        settlement = request.settlements.add()
        settlement.CopyFrom(action or _settlement.PLAIN_ACK)
        settlement.tokens[:] = chosen
        response = await self._connection.call(
            lambda node: node.tasks.SettleTasks, request, timeout=timeout
        )
        refused = refused_items(response.errors)
        for item, error in refused.items():
            error.args = (f"token {chosen[item]}: {error.message}",)
        raise_refused_items(refused, len(chosen))
        return [Task(message) for message in response.tasks]

    async def execute(
        self, batch: Batch, *, request_id: str | None = None, timeout: Duration | None = None
    ) -> list[task_service_pb2.BatchResult]:
        """Execute the operations of a batch atomically; return one result per operation.

        Tasks that the batch settles count as settled: leaving their `async with` block does
        nothing.

        Args:
            batch: the operations.
            request_id: idempotency key chosen by the caller, see `AsyncTube.put`.
            timeout: time limit of the call, retries included.

        Raises:
            TaskraftError: nothing was executed; the metadata `operation` and `item` name the failed
                part.
        """
        request = batch.request(request_id)
        with self._traced(request, batch, joins_trace=request_id is None) as sent:
            response = await self._connection.call(
                lambda node: node.tasks.ExecuteBatch, request, timeout=timeout
            )
            done = [one.put.task_ids for one in response.results if one.HasField("put")]
            for ids, given in zip(sent, done, strict=False):
                ids.extend(given)
        batch.done()
        return list(response.results)

    def _traced(
        self, request: task_service_pb2.ExecuteBatchRequest, batch: Batch, *, joins_trace: bool
    ) -> AbstractContextManager[list[list[int]]]:
        """Trace a batch; yields one list per put, to which the caller adds the new task ids."""
        puts = [one.put for one in request.operations if one.HasField("put")]
        spans = self._connection.spans
        if spans is None:
            return nullcontext([])
        return spans.batch(puts, batch.settled, joins_trace=joins_trace)

    # ---------------------------------------------------------------------- snapshots

    def snapshot(
        self,
        *,
        local: bool = False,
        snapshot_id: str = "",
        offset: int = 0,
        timeout: Duration | None = None,
    ) -> AsyncIterator[cluster_service_pb2.SaveSnapshotResponse]:
        """Yield a snapshot of the cluster: its header, pieces of its content, the digest.

        After a broken connection, the transfer continues on the same node.
        `taskraft snapshot save` writes the messages to a file.

        Args:
            local: accept the state that the node has applied, which works without a majority.
            snapshot_id: continue the snapshot of an earlier header.
            offset: number of bytes of the content that the caller already has.
            timeout: maximum time without a piece, retries included. The time for which the node
                computes the digest does not count.

        Raises:
            SnapshotNotFound: no node keeps the snapshot any longer.
        """
        return _snapshot.read_snapshot(
            self._connection,
            local=local,
            snapshot_id=snapshot_id,
            offset=offset,
            seconds_max=self._connection.limit_seconds(timeout),
        )

    # ---------------------------------------------------------------------- change feed

    def changes(
        self,
        tubes: Texts = (),
        *,
        kinds: Texts = (),
        contents: Texts = (),
        from_start: bool = False,
        cursor: Mapping[int, int] | None = None,
        follow: bool = True,
        timeout: Duration | None = None,
    ) -> AsyncIterator[feed_service_pb2.ChangeEvent]:
        """Yield one event per task transition, in order within each partition.

        Args:
            tubes: names of tubes; default: all.
            kinds: kinds of events, for example `["ACK", "BURY"]`; default: all.
            contents: parts of the task that each event carries: "key", "headers", "payload". The
                node reads the task when it sends the event; a task that has left its tube has no
                content.
            from_start: start at the oldest event that is kept, instead of now.
            cursor: next sequence number to read, by partition.
            follow: wait for new events, instead of stopping at the current end of the feed.
                Broken streams are then continued without a time limit.
            timeout: time limit of the first call; without `follow`, also the maximum time without
                a chunk of events. Retries are included.

        Raises:
            CursorTrimmed: retention has removed the events at the cursor.
        """
        return _change_feed.tail(
            self._connection,
            tubes=texts("tubes", tubes),
            kinds=texts("kinds", kinds),
            contents=[
                choice("contents", one, _change_feed.CONTENTS)
                for one in texts("contents", contents)
            ],
            is_from_start=from_start,
            cursor=cursor,
            follow=follow,
            timeout=timeout,
        )
