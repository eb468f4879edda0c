"""Methods of `AsyncClient` that create, change, drop, list and count tubes."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Unpack

from taskraft import errors
from taskraft._arguments import Texts, choice, flag, text, texts, whole_number
from taskraft._durations import Duration, milliseconds
from taskraft._instants import instant_ms
from taskraft._leader_caller import new_request_id
from taskraft._message_fields import consistency_of
from taskraft._tube_differences import OPTIONS_PATH, TubeDiffers, text_of_differences
from taskraft._tube_info import TubeInfo
from taskraft._tube_settings import Kind, TubeSettings, create_request, update_request
from taskraft._tube_statistics import RANKS, Rank, Statistics, TubeStatistics
from taskraft.v1 import tube_service_pb2

if TYPE_CHECKING:
    from datetime import datetime

    from taskraft._connection import Connection


class AsyncTubeAdmin:
    """The methods of `AsyncClient` that concern whole tubes."""

    _connection: Connection

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
    ) -> TubeInfo:
        """Create a tube and return its definition.

        Args:
            name: 1 to 128 letters, digits, "_", "-", "." and ":".
            kind: order and features of the tube, see docs/tubes.md.
            driver: name of an installed driver; only with the kind "custom".
            if_not_exists: return the existing tube if the name is in use. If a given option
                differs from the option in force, the warning `TubeDiffers` names it;
                `ensure_tube` changes it.
            profile: defaults of another queue system: "tarantool", "xqueue", "t15" or "rsqueue".
            timeout: time limit of the call, retries included.
            **settings: see `TubeSettings`.

        Raises:
            TubeExists: a tube with this name exists.
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
        if response.differences:
            warnings.warn(TubeDiffers(name, response.differences), stacklevel=2)
        return TubeInfo.of(response.tube)

    async def ensure_tube(
        self,
        name: str,
        kind: Kind = "fifottl",
        *,
        driver: str = "",
        profile: str = "",
        timeout: Duration | None = None,
        **settings: Unpack[TubeSettings],
    ) -> TubeInfo:
        """Create a tube, or bring the given options of an existing tube into force; return it.

        Options that are not given stay as they are.

        Args:
            name: 1 to 128 letters, digits, "_", "-", "." and ":".
            kind: order and features of the tube, see docs/tubes.md.
            driver: name of an installed driver; only with the kind "custom".
            profile: defaults of another queue system.
            timeout: time limit of each of the two calls, retries included.
            **settings: see `TubeSettings`.

        Raises:
            TubeExists: the tube has another kind, driver or profile, which are fixed at creation.
            InvalidField: an option cannot be changed, or is out of range.
            TubeBusy: an option can change only while the tube is empty.
        """
        request = create_request(
            name, kind, driver=driver, if_not_exists=True, profile=profile, settings=settings
        )
        response = await self._connection.call(
            lambda node: node.tubes.CreateTube, request, timeout=timeout
        )
        tube = TubeInfo.of(response.tube)
        if not response.differences:
            return tube
        fixed = [path for path in response.differences if not path.startswith(OPTIONS_PATH)]
        if fixed:
            raise errors.TubeExists(
                f"the tube {name!r} exists with another {text_of_differences(fixed)}",
                metadata={"tube": name},
                advice=f"Use the kind {tube.kind!r}, or drop the tube.",
            )
        return await self.update_tube(name, timeout=timeout, **settings)

    async def update_tube(
        self,
        name: str,
        *,
        reset: Texts = (),
        timeout: Duration | None = None,
        **settings: Unpack[TubeSettings],
    ) -> TubeInfo:
        """Change options of a tube in use, all or none; return the new definition.

        Args:
            name: name of the tube.
            reset: options to set back to their defaults.
            timeout: time limit of the call, retries included.
            **settings: see `TubeSettings`.

        Raises:
            InvalidField: an option cannot be changed, or is out of range.
            TubeBusy: an option can change only while the tube is empty.
        """
        request = update_request(name, reset=reset, settings=settings)
        response = await self._connection.call(
            lambda node: node.tubes.UpdateTube, request, timeout=timeout
        )
        return TubeInfo.of(response.tube)

    async def drop_tube(
        self, name: str, *, force: bool = False, timeout: Duration | None = None
    ) -> int:
        """Remove a tube with its tasks; return the number of removed tasks.

        Raises:
            TubeBusy: the tube has TAKEN tasks or waiting consumers, and `force` is not set.
        """
        request = tube_service_pb2.DropTubeRequest(
            request_id=new_request_id(), name=text("name", name), force=flag("force", force)
        )
        response = await self._connection.call(
            lambda node: node.tubes.DropTube, request, timeout=timeout
        )
        return response.tasks

    async def truncate_tube(self, name: str, *, timeout: Duration | None = None) -> int:
        """Remove all tasks of a tube; return the number of removed tasks."""
        request = tube_service_pb2.TruncateTubeRequest(
            request_id=new_request_id(), name=text("name", name)
        )
        response = await self._connection.call(
            lambda node: node.tubes.TruncateTube, request, timeout=timeout
        )
        return response.tasks

    async def list_tubes(
        self,
        names: Texts = (),
        *,
        staleness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> list[TubeInfo]:
        """Return the tubes whose names match one of the patterns, or all tubes, by name.

        Args:
            names: names or patterns; default: all tubes.
            staleness: accept the state that a node had at most this long ago; default: the current
                state.
            timeout: time limit of each page of 1 000 tubes, retries included.
        """
        request = tube_service_pb2.ListTubesRequest(
            names=texts("names", names), consistency=consistency_of(staleness)
        )
        pages = self._connection.pages(lambda node: node.tubes.ListTubes, request, timeout=timeout)
        return [TubeInfo.of(tube) async for page in pages for tube in page.tubes]

    async def stats(
        self,
        tubes: Texts = (),
        *,
        transitions: bool = False,
        brief: bool = False,
        changed_since: int = 0,
        staleness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Statistics:
        """Return the number of tasks per state for each tube, and the totals.

        Args:
            tubes: names or patterns; a name without a tube is left out. Default: all tubes.
            transitions: True: also return the number of transitions between states.
            brief: True: leave out the counts of operations, which are then 0.
            changed_since: `revision` of an earlier result: leave out tubes that have not changed
                since then. `tube_count` tells whether a tube was dropped. 0: all tubes.
            staleness: accept the state that a node had at most this long ago; default: the current
                state.
            timeout: time limit of each page of 1 000 tubes, retries included.
        """
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=texts("tubes", tubes),
            transitions=flag("transitions", transitions),
            brief=flag("brief", brief),
            changed_since_revision=whole_number("changed_since", changed_since, 0, 2**63 - 1),
            consistency=consistency_of(staleness),
        )
        counts: list[TubeStatistics] = []
        revisions: list[int] = []
        async for page in self._connection.pages(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        ):
            counts += map(TubeStatistics.of, page.tubes)
            revisions.append(page.revision)
            last = page
        # Tubes of an earlier page may have changed before the last page was read.
        last.revision = min(revisions)
        return Statistics.of(last, counts)

    async def worst_tubes(
        self,
        by: Rank,
        tubes_max: int = 20,
        *,
        tubes: Texts = (),
        staleness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Statistics:
        """Return the counts of the first tubes by rank, and the totals of all.

        Args:
            by: "ready" (most READY tasks), "buried" (most BURIED tasks) or "oldest_ready" (oldest
                READY task). Tubes without such tasks are left out.
            tubes_max: maximum number of tubes, 1 to 1 000.
            tubes: names or patterns of the tubes that are ranked; default: all tubes.
            staleness: accept the state that a node had at most this long ago; default: the current
                state.
            timeout: time limit of the call, retries included.
        """
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=texts("tubes", tubes),
            order_by=tube_service_pb2.GetStatisticsRequest.OrderBy.ValueType(
                choice("by", by, RANKS)
            ),
            page_size=whole_number("tubes_max", tubes_max, 1, 1_000),
            consistency=consistency_of(staleness),
        )
        response = await self._connection.call(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        )
        return Statistics.of(response, [TubeStatistics.of(one) for one in response.tubes])

    async def history(
        self,
        tubes: Texts = (),
        *,
        total: bool = False,
        step: Duration = "10s",
        samples_max: int = 0,
        timeout: Duration | None = None,
    ) -> tube_service_pb2.GetHistoryResponse:
        """Return samples of the recent past: one hour at 10 s, or one day at 120 s.

        The called node keeps the samples in memory. A node that was restarted has fewer samples.

        Args:
            tubes: names of tubes, at most 200; tubes without samples are left out.
            total: True: also return the sum over all tubes, as the first history.
            step: distance between two samples, 10 s or 120 s.
            samples_max: maximum number of samples, the newest ones; 0: all.
            timeout: time limit of the call, retries included.
        """
        request = tube_service_pb2.GetHistoryRequest(
            tubes=texts("tubes", tubes),
            total=flag("total", total),
            step_ms=milliseconds(step, "step"),
            samples_max=samples_max,
        )
        return await self._connection.call(
            lambda node: node.tubes.GetHistory, request, timeout=timeout
        )

    async def failures(
        self,
        tubes: Texts = (),
        *,
        since: datetime | None = None,
        timeout: Duration | None = None,
    ) -> tube_service_pb2.ListFailuresResponse:
        """Return all counted failures by tube and fingerprint, in the order of the tubes' names.

        The called node keeps the counts in memory, from `counted_since_ms` on. After a start it
        counts the last 24 hours of the change feed again, at most 500 000 events.

        Args:
            tubes: names of tubes, at most 200; default: all tubes that the caller may read.
            since: leave out rows whose last failure was earlier; needs a time zone.
            timeout: time limit of each page of 1 000 rows, retries included.

        Raises:
            NotSupported: the node has an older version, which does not count failures.
        """
        request = tube_service_pb2.ListFailuresRequest(
            tubes=texts("tubes", tubes),
            since_ms=0 if since is None else instant_ms("since", since),
        )
        answer = tube_service_pb2.ListFailuresResponse()
        pages = self._connection.pages(
            lambda node: node.tubes.ListFailures, request, timeout=timeout
        )
        async for page in pages:
            answer.MergeFrom(page)
        answer.next_page_token = ""
        return answer

    async def consumers(
        self, tube: str = "", *, session: str = "", timeout: Duration | None = None
    ) -> list[tube_service_pb2.WaitingConsumer]:
        """Return the consumers that wait for tasks of a tube, in the order of service.

        Args:
            tube: name of the tube.
            session: instead of a tube: the id of a session, or its first 8 characters as
                `list_sessions` returns them.
            timeout: time limit of each call, retries included.

        Raises:
            TubeNotFound: there is no such tube.
            SessionNotFound: there is no such session, or it belongs to another principal.
        """
        request = tube_service_pb2.ListConsumersRequest(
            tube=text("tube", tube), session_id=text("session", session)
        )
        pages = self._connection.pages(
            lambda node: node.tubes.ListConsumers, request, timeout=timeout
        )
        return [consumer async for page in pages for consumer in page.consumers]

    async def total(
        self,
        tubes: Texts = (),
        *,
        staleness: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Statistics:
        """Return only the sums over several tubes, at the cost of one small call.

        Args:
            tubes: names or patterns; default: all tubes.
            staleness: accept the state that a node had at most this long ago; default: the current
                state.
            timeout: time limit of the call, retries included.
        """
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=texts("tubes", tubes), page_size=1, consistency=consistency_of(staleness)
        )
        response = await self._connection.call(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        )
        return Statistics.of(response, ())
