"""Create, change, drop, list and count tubes, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from taskraft._arguments import Texts, flag, text, texts
from taskraft._durations import Duration
from taskraft._leader_caller import new_request_id
from taskraft._tube_settings import Kind, TubeSettings, create_request, update_request
from taskraft.v1 import tube_service_pb2

if TYPE_CHECKING:
    from taskraft._connection import Connection


class AsyncTubeAdmin:
    """The part of a client that is about tubes as a whole."""

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
            request_id=new_request_id(), name=text("name", name), force=flag("force", force)
        )
        response = await self._connection.call(
            lambda node: node.tubes.DropTube, request, timeout=timeout
        )
        return response.tasks

    async def truncate_tube(self, name: str, *, timeout: Duration | None = None) -> int:
        """Remove all tasks of a tube and return how many."""
        request = tube_service_pb2.TruncateTubeRequest(
            request_id=new_request_id(), name=text("name", name)
        )
        response = await self._connection.call(
            lambda node: node.tubes.TruncateTube, request, timeout=timeout
        )
        return response.tasks

    async def list_tubes(
        self, names: Texts = (), *, timeout: Duration | None = None
    ) -> list[tube_service_pb2.Tube]:
        """Return the tubes whose names fit one of the patterns, or all, by name."""
        request = tube_service_pb2.ListTubesRequest(names=texts("names", names))
        pages = self._connection.pages(lambda node: node.tubes.ListTubes, request, timeout=timeout)
        return [tube async for page in pages for tube in page.tubes]

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
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=texts("tubes", tubes), transitions=flag("transitions", transitions)
        )
        counts: list[tube_service_pb2.TubeStatistics] = []
        async for page in self._connection.pages(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        ):
            counts += page.tubes
            last = page
        del last.tubes[:]
        last.tubes.extend(counts)
        return last
