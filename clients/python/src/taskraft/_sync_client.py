"""The client for threads and scripts.

It is a facade of the client for asyncio, which runs on one event loop in a background thread. The
other ways were weighed: a second implementation over gRPC's synchronous API would double the parts
that are hard to get right (joining, retries, streams that resume) and could not join the calls of
several threads into one message without a thread in the background either; generated code would be
twice the code to read. The price of the facade is the way to another thread and back, 60 to 100 us
a call, which a call to a synced majority does not feel; lists and subscriptions pay it once for
each list. A stream that is kept going in the background is also what keeps a slow handler from
losing it.

Any number of threads may share one client. Fork before the first call, or after `close`; in a child
that was forked in between every call raises `ClientForked`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

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
    from types import TracebackType

    import grpc

    from taskraft._async_subscription import SubscribeOptions
    from taskraft._durations import Duration
    from taskraft._take import TakeOptions, TubeSources
    from taskraft.credentials import AccessOptions


class Client:
    """Put, take and settle tasks from threads and scripts.

        with Client() as client:
            task_id = client.tube("emails").put({"to": "a@b.c"})

    It connects with the first call, follows the leader, and repeats what was not answered with the
    same request_id until the time of the call is over.
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
        """Describe the cluster as `AsyncClient` does; nothing is connected yet."""
        self._inner = AsyncClient(
            target,
            timeout=timeout,
            name=name,
            session_ttr=session_ttr,
            credentials=credentials,
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
        """Close subscriptions and the session; what they hold is handed out again."""
        self._portal.close()

    # ----------------------------------------------------------------------------- tasks

    def tube(self, name: str) -> Tube:
        """Return a handle of a tube; the server is not asked."""
        return Tube(self._inner.tube(name), self._portal)

    def subscribe(self, tubes: TubeSources, **options: Unpack[SubscribeOptions]) -> Subscription:
        """Return the tasks of one or several tubes as they become ready.

        Args:
            tubes: A name or pattern, several, or names with their shares.
            **options: See `SubscribeOptions`.
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
        """Take up to `tasks_max` tasks from one or several tubes; wait only for the first."""
        taken = self._portal.run(
            self._inner.take_many(tubes, tasks_max, wait=wait, timeout=timeout, **options)
        )
        return [TakenTask(task, self._portal) for task in taken]

    settle = blocking(AsyncClient.settle)
    execute = blocking(AsyncClient.execute)

    # ----------------------------------------------------------------------------- tubes

    create_tube = blocking(AsyncClient.create_tube)
    update_tube = blocking(AsyncClient.update_tube)
    drop_tube = blocking(AsyncClient.drop_tube)
    truncate_tube = blocking(AsyncClient.truncate_tube)
    list_tubes = blocking(AsyncClient.list_tubes)
    stats = blocking(AsyncClient.stats)

    # --------------------------------------------------------------------------- cluster

    list_sessions = blocking(AsyncClient.list_sessions)
    configure = blocking(AsyncClient.configure)
    cluster_state = blocking(AsyncClient.cluster_state)
    add_member = blocking(AsyncClient.add_member)
    promote_member = blocking(AsyncClient.promote_member)
    remove_member = blocking(AsyncClient.remove_member)
    transfer_leadership = blocking(AsyncClient.transfer_leadership)
    server_info = blocking(AsyncClient.server_info)
    changes = iterating(AsyncClient.changes)
