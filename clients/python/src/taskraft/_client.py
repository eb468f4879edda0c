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
from taskraft._connection import SESSION_TTR_DEFAULT, TIMEOUT_DEFAULT
from taskraft._groups import Groups
from taskraft._portal import Portal
from taskraft._schedules import Schedules
from taskraft._sync_chosen import iterate
from taskraft._sync_subscription import Subscription
from taskraft._sync_taken import TakenTask
from taskraft._sync_tube import Tube

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    import grpc

    from taskraft._async_tube import TakeOptions
    from taskraft._batch import Batch
    from taskraft._durations import Duration
    from taskraft._settlement import Settlement
    from taskraft._sources import Sources
    from taskraft._subscription import SubscribeOptions
    from taskraft._tubes import Kind, TubeSettings
    from taskraft.credentials import AccessOptions
    from taskraft.v1 import (
        cluster_service_pb2,
        feed_service_pb2,
        task_service_pb2,
        tube_service_pb2,
    )


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
        self._client = AsyncClient(
            target,
            timeout=timeout,
            name=name,
            session_ttr=session_ttr,
            credentials=credentials,
            **access,
        )
        self._portal = Portal(self._client.close)
        self.groups = Groups(self._client.groups, self._portal)
        self.schedules = Schedules(self._client.schedules, self._portal)

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
        return Tube(self._client.tube(name), self._portal)

    def subscribe(self, tubes: Sources, **options: Unpack[SubscribeOptions]) -> Subscription:
        """Return the tasks of one or several tubes as they become ready.

        Args:
            tubes: A name or pattern, several, or names with their shares.
            **options: See `SubscribeOptions`.
        """
        return Subscription(self._client.subscribe(tubes, **options), self._portal)

    def take_many(
        self,
        tubes: Sources,
        tasks_max: int = 1,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[TakenTask]:
        """Take up to `tasks_max` tasks from one or several tubes; wait only for the first."""
        taken = self._portal.run(
            self._client.take_many(tubes, tasks_max, wait=wait, timeout=timeout, **options)
        )
        return [TakenTask(task, self._portal) for task in taken]

    def settle(
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
        self._portal.run(self._client.settle(tokens, action, timeout=timeout))

    def execute(
        self, batch: Batch, *, timeout: Duration | None = None
    ) -> list[task_service_pb2.BatchResult]:
        """Do the operations of a batch, all or none; see `AsyncClient.execute`."""
        return self._portal.run(self._client.execute(batch, timeout=timeout))

    # ----------------------------------------------------------------------------- tubes

    def create_tube(
        self,
        name: str,
        kind: Kind = "fifottl",
        *,
        if_not_exists: bool = False,
        profile: str = "",
        timeout: Duration | None = None,
        **settings: Unpack[TubeSettings],
    ) -> tube_service_pb2.Tube:
        """Create a tube and return it as it is now; see `AsyncClient.create_tube`."""
        return self._portal.run(
            self._client.create_tube(
                name,
                kind,
                if_not_exists=if_not_exists,
                profile=profile,
                timeout=timeout,
                **settings,
            )
        )

    def update_tube(
        self,
        name: str,
        *,
        reset: Iterable[str] = (),
        timeout: Duration | None = None,
        **settings: Unpack[TubeSettings],
    ) -> tube_service_pb2.Tube:
        """Change options of a tube while it is in use; see `AsyncClient.update_tube`."""
        return self._portal.run(
            self._client.update_tube(name, reset=reset, timeout=timeout, **settings)
        )

    def drop_tube(self, name: str, *, force: bool = False, timeout: Duration | None = None) -> int:
        """Remove a tube and return how many tasks went with it.

        Raises:
            TubeBusy: Tasks are taken or consumers wait, and `force` is not set.
        """
        return self._portal.run(self._client.drop_tube(name, force=force, timeout=timeout))

    def truncate_tube(self, name: str, *, timeout: Duration | None = None) -> int:
        """Remove all tasks of a tube and return how many."""
        return self._portal.run(self._client.truncate_tube(name, timeout=timeout))

    def list_tubes(
        self, names: Sequence[str] = (), *, timeout: Duration | None = None
    ) -> list[tube_service_pb2.Tube]:
        """Return the tubes whose names fit one of the patterns, or all, by name."""
        return self._portal.run(self._client.list_tubes(names, timeout=timeout))

    def stats(
        self, tubes: Sequence[str] = (), *, timeout: Duration | None = None
    ) -> tube_service_pb2.GetStatisticsResponse:
        """Return how many tasks are in each state by tube, and their sum."""
        return self._portal.run(self._client.stats(tubes, timeout=timeout))

    # --------------------------------------------------------------------------- cluster

    def cluster_state(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetClusterStateResponse:
        """Return the members, who leads, and how far each has come."""
        return self._portal.run(self._client.cluster_state(timeout=timeout))

    def add_member(
        self, name: str, peer_address: str, address: str, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.Member:
        """Add a member that learns and does not vote yet; see `AsyncClient.add_member`."""
        adding = self._client.add_member(name, peer_address, address, timeout=timeout)
        return self._portal.run(adding)

    def promote_member(
        self, name: str, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.Member:
        """Make a member vote; see `AsyncClient.promote_member`."""
        return self._portal.run(self._client.promote_member(name, timeout=timeout))

    def remove_member(self, name: str, *, timeout: Duration | None = None) -> None:
        """Remove a member for good; see `AsyncClient.remove_member`."""
        self._portal.run(self._client.remove_member(name, timeout=timeout))

    def transfer_leadership(self, name: str = "", *, timeout: Duration | None = None) -> str:
        """Hand leadership over; return who leads then."""
        return self._portal.run(self._client.transfer_leadership(name, timeout=timeout))

    def server_info(
        self, *, timeout: Duration | None = None
    ) -> cluster_service_pb2.GetServerInfoResponse:
        """Return version, limits and features of the node that is asked."""
        return self._portal.run(self._client.server_info(timeout=timeout))

    def changes(
        self,
        tubes: Sequence[str] = (),
        *,
        from_start: bool = False,
        cursor: Mapping[int, int] | None = None,
        follow: bool = True,
    ) -> Iterator[feed_service_pb2.ChangeEvent]:
        """Yield one event for each transition of each task; see `AsyncClient.changes`."""
        events = self._client.changes(tubes, from_start=from_start, cursor=cursor, follow=follow)
        yield from iterate(self._portal, events)
