"""Check that the tubes and the session of a call exist and disk space is free; create tubes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from taskraft.v1 import error_pb2
from taskraft.v1 import tube_service_pb2 as pb
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import owns_session
from taskraft_service.api.rpc.methods import UnaryCall
from taskraft_service.api.rpc.status import CallRefused, tube_not_found
from taskraft_service.api.state.command_executor import creation_key, scoped_request_id
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.languages.patterns import is_pattern
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.tube_profiles import PROFILES
from taskraft_service.storage.disk_monitor import DiskMonitor

AUTO_KINDS: Final = (pb.Tube.FIFO, pb.Tube.FIFOTTL, pb.Tube.UTUBE, pb.Tube.UTUBETTL)
"""Kinds of tubes that a put can create, because they need no options."""


class ExistenceCheck:
    """Checks the locally applied state, and checks again behind a read barrier before it refuses.

    Args:
        reader: reads the queue.
        creates_tubes: returns whether puts create missing tubes; then no tube is refused.
    """

    def __init__(self, reader: QueueReader, *, creates_tubes: Callable[[], bool]) -> None:
        self._reader = reader
        self._creates_tubes = creates_tubes

    async def check_tubes(self, sources: Sequence[str]) -> None:
        """Check that each source is a pattern or names an existing tube.

        Raises:
            CallRefused: TUBE_NOT_FOUND.
        """
        for source in sources:
            if self._reader.applied.tube_number(source) is not None or is_pattern(source):
                continue
            if self._creates_tubes():
                return
            await self._reader.barrier()
            if self._reader.applied.tube_number(source) is None:
                raise tube_not_found(source)

    async def check_session(self, session_id: str, caller: Caller) -> None:
        """Check that the session exists and belongs to the caller; an empty id passes.

        Raises:
            CallRefused: SESSION_NOT_FOUND.
        """
        if session_id and not owns_session(self._reader.applied, session_id, caller):
            await self._reader.barrier()
            if not owns_session(self._reader.applied, session_id, caller):
                raise CallRefused(
                    error_pb2.Error.SESSION_NOT_FOUND, "the session does not exist", {}
                )


class DiskSpaceGuard:
    """Checks before a call stores new content that enough disk space is free.

    Args:
        disk: measures the free disk space.
        queues: tells which tubes are temporary; these need no disk space.
    """

    def __init__(self, disk: DiskMonitor, queues: QueueLocator) -> None:
        self._disk = disk
        self._queues = queues

    def check_tubes(self, tubes: Iterable[str]) -> None:
        """Check the disk space for new content of ``tubes``.

        Raises:
            CallRefused: DISK_LOW.
        """
        if self._disk.is_low and any(self._queues.is_logged(tube) for tube in tubes):
            raise self._low()

    def check(self) -> None:
        """Check the disk space for new content that belongs to no tube.

        Raises:
            CallRefused: DISK_LOW.
        """
        if self._disk.is_low:
            raise self._low()

    def _low(self) -> CallRefused:
        return CallRefused(
            error_pb2.Error.DISK_LOW,
            "new content is refused because free disk space is low; takes and settlements work",
            {"free_bytes": str(self._disk.free_bytes), "low": str(self._disk.low_bytes)},
        )


class TubeAutoCreation:
    """Builds the commands that create missing tubes in the same entry as the put.

    Args:
        reader: reads the queue.
        in_force: the settings of automatic creation.
    """

    def __init__(self, reader: QueueReader, in_force: EffectiveSettings) -> None:
        self._reader = reader
        self._in_force = in_force

    def defines_zero(self, tube: str) -> bool:
        """Return ``QueueReader.defines_zero`` for a tube that may be created with the put."""
        if self._reader.applied.tube(tube) is not None:
            return self._reader.defines_zero((tube,))
        profile = PROFILES.get(self._in_force().auto_create_profile or "")
        return profile is not None and profile.defines_zero

    def commands_for(self, names: Iterable[str], call: UnaryCall[Any]) -> Sequence[EncodedCommand]:
        """Return one command per missing tube; none if automatic creation is off.

        A retry of an answered put creates no tubes.

        Raises:
            CallRefused: INVALID_FIELD, if this release does not know the stored kind or profile.
        """
        settings = self._in_force()
        if not settings.auto_create_tubes:
            return ()
        queue = self._reader.applied
        missing = [name for name in dict.fromkeys(names) if queue.tube(name) is None]
        if not missing or queue.remembers(scoped_request_id(call)):
            return ()
        kind = pb.Tube.Kind.ValueType(settings.auto_create_kind or 0)
        profile = settings.auto_create_profile or ""
        if profile not in PROFILES:
            raise _unusable("auto_create_profile", profile)
        if kind not in AUTO_KINDS:
            raise _unusable("auto_create_kind", str(int(kind)))
        creations = [_creation(name, kind, profile) for name in missing]
        return [
            encode_leader_command(CREATE_TUBE, one, creation_key(call, one)) for one in creations
        ]


def _unusable(setting: str, stored: str) -> CallRefused:
    """Return the refusal of a put that would create a tube with an unknown kind or profile."""
    text = (
        f"cannot create a tube: this release does not support the value {stored[:64]!r} of the"
        f" cluster setting {setting}; change the setting, or create the tube"
    )
    return CallRefused(error_pb2.Error.INVALID_FIELD, text, {"field": setting})


def _creation(name: str, kind: pb.Tube.Kind.ValueType, profile: str) -> pb.CreateTubeRequest:
    tube = pb.Tube(name=name, kind=kind)
    return pb.CreateTubeRequest(tube=tube, if_not_exists=True, profile=profile)
