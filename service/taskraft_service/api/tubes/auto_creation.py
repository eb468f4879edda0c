"""Create the missing tubes of puts, if the settings of the cluster allow it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskraft.v1 import tube_service_pb2
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command


class TubeAutoCreation:
    """Builds the commands that create missing tubes in the same entry as the put.

    Args:
        reader: reads the queue.
        in_force: the settings of automatic creation.
    """

    def __init__(self, reader: QueueReader, in_force: EffectiveSettings) -> None:
        self._reader = reader
        self._in_force = in_force

    def commands_for(self, names: Iterable[str], request_id: str) -> Sequence[EncodedCommand]:
        """Return one command per missing tube; none if automatic creation is off.

        A retry of an answered put creates no tubes.
        """
        settings = self._in_force()
        if not settings.auto_create_tubes:
            return ()
        queue = self._reader.applied
        missing = [name for name in dict.fromkeys(names) if queue.tube(name) is None]
        if not missing or queue.remembers(request_id):
            return ()
        kind = tube_service_pb2.Tube.Kind.ValueType(settings.auto_create_kind or 0)
        profile = settings.auto_create_profile or ""
        return [
            encode_leader_command(CREATE_TUBE, _creation(name, kind, profile)) for name in missing
        ]


def _creation(
    name: str, kind: tube_service_pb2.Tube.Kind.ValueType, profile: str
) -> tube_service_pb2.CreateTubeRequest:
    tube = tube_service_pb2.Tube(name=name, kind=kind)
    return tube_service_pb2.CreateTubeRequest(tube=tube, if_not_exists=True, profile=profile)
