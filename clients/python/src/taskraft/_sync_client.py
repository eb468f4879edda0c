"""The client for threads and scripts.

`Client` wraps the asyncio client, which runs on one event loop in a background thread. Two
alternatives were rejected. A second implementation on gRPC's synchronous API would duplicate the
difficult parts (batching, retries, resuming streams), and it would also need a background thread to
combine the calls of several threads into one message. Generated code would double the code to read.
The wrapper costs 60 to 100 µs per call for the switch between threads, which is small compared with
a durable write on a majority. Lists and subscriptions pay this cost once per list. The background
thread also keeps a subscription alive while a handler is busy.

Any number of threads may share one client. Fork before the first call, or after `close`. After any
other fork, every call in the child raises `ClientForked`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, Unpack

from taskraft._async_client import AsyncClient
from taskraft._blocking_facade import blocking, iterating
from taskraft._blocking_portal import BlockingPortal
from taskraft._connection import SESSION_TTR_DEFAULT, TIMEOUT_DEFAULT
from taskraft._groups import Groups
from taskraft._schedules import Schedules
from taskraft._sync_subscription import Subscription
from taskraft._sync_taken_task import TakenTask
from taskraft._sync_tube import Tube

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import grpc

    from taskraft._async_subscription import SubscribeOptions
    from taskraft._durations import Duration
    from taskraft._node_selector import FailoverHook
    from taskraft._take import TakeOptions, TubeSources
    from taskraft.credentials import AccessOptions


class Client:
    """Put, take and settle tasks from threads and scripts.

        with Client() as client:
            task_id = client.tube("emails").put({"to": "a@b.c"})

    The client connects on the first call and sends each call to the leader. It retries an
    unanswered call with the same request_id until the deadline of the call.
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
        """Configure the client without connecting; the arguments are those of `AsyncClient`."""
        self._inner = AsyncClient(
            target,
            timeout=timeout,
            name=name,
            session_ttr=session_ttr,
            client_id=client_id,
            labels=labels,
            credentials=credentials,
            on_failover=on_failover,
            **access,
        )
        self._portal = BlockingPortal(self._inner.close)
        self.groups = Groups(self._inner.groups, self._portal)
        self.schedules = Schedules(self._inner.schedules, self._portal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close subscriptions and the session; their tasks are released and can be taken again."""
        self._portal.close()

    # ----------------------------------------------------------------------------- tasks

    @property
    def failovers(self) -> int:
        """Number of changes of the leader that the client has noticed."""
        return self._inner.failovers

    def tube(self, name: str) -> Tube:
        """Return a handle of a tube without calling the server."""
        return Tube(self._inner.tube(name), self._portal)

    def subscribe(self, tubes: TubeSources, **options: Unpack[SubscribeOptions]) -> Subscription:
        """Return a subscription to the tasks of one or several tubes.

        Args:
            tubes: a name or pattern, several of these, or names with their weights.
            **options: see `SubscribeOptions`.
        """
        return Subscription(self._inner.subscribe(tubes, **options), self._portal)

    def take_many(
        self,
        tubes: TubeSources,
        tasks_max: int = 1,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[TakenTask]:
        """Take up to `tasks_max` tasks from one or several tubes.

        The call waits only until the first task is READY.
        """
        taken = self._portal.run(
            self._inner.take_many(tubes, tasks_max, wait=wait, timeout=timeout, **options)
        )
        return [TakenTask(task, self._portal) for task in taken]

    settle = blocking(AsyncClient.settle)
    settle_and_read = blocking(AsyncClient.settle_and_read)
    execute = blocking(AsyncClient.execute)

    # ----------------------------------------------------------------------------- tubes

    create_tube = blocking(AsyncClient.create_tube)
    ensure_tube = blocking(AsyncClient.ensure_tube)
    update_tube = blocking(AsyncClient.update_tube)
    drop_tube = blocking(AsyncClient.drop_tube)
    truncate_tube = blocking(AsyncClient.truncate_tube)
    list_tubes = blocking(AsyncClient.list_tubes)
    stats = blocking(AsyncClient.stats)
    worst_tubes = blocking(AsyncClient.worst_tubes)
    total = blocking(AsyncClient.total)
    history = blocking(AsyncClient.history)
    failures = blocking(AsyncClient.failures)
    consumers = blocking(AsyncClient.consumers)

    start_bulk_sweep = blocking(AsyncClient.start_bulk_sweep)
    bulk_sweep = blocking(AsyncClient.bulk_sweep)
    bulk_sweeps = blocking(AsyncClient.bulk_sweeps)
    stop_bulk_sweep = blocking(AsyncClient.stop_bulk_sweep)

    # --------------------------------------------------------------------------- cluster

    list_sessions = blocking(AsyncClient.list_sessions)
    session = blocking(AsyncClient.session)
    list_leases = blocking(AsyncClient.list_leases)
    caller = blocking(AsyncClient.caller)
    audit = blocking(AsyncClient.audit)
    configure = blocking(AsyncClient.configure)
    cluster_state = blocking(AsyncClient.cluster_state)
    node_states = blocking(AsyncClient.node_states)
    add_member = blocking(AsyncClient.add_member)
    promote_member = blocking(AsyncClient.promote_member)
    remove_member = blocking(AsyncClient.remove_member)
    transfer_leadership = blocking(AsyncClient.transfer_leadership)
    upgrade_cluster = blocking(AsyncClient.upgrade_cluster)
    server_info = blocking(AsyncClient.server_info)
    changes = iterating(AsyncClient.changes)
    snapshot = iterating(AsyncClient.snapshot)
