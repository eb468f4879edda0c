"""Make the tubes that puts name and that do not exist, where the settings of the cluster say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskraft.v1 import tube_service_pb2
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command


class TubeAutoCreation:
    """Writes the commands that make tubes, for the entry of the put that needs them.

    Args:
        reading: has the queue.
        in_force: the settings that say whether, and which.
    """

    def __init__(self, reading: QueueReader, in_force: EffectiveSettings) -> None:
        self._reading = reading
        self._in_force = in_force

    def creations(self, names: Iterable[str], request_id: str) -> Sequence[EncodedCommand]:
        """Return a command for each tube that is missing; none where puts make no tubes.

        Nor does the repetition of a put that was answered before make any.
        """
        settings = self._in_force()
        if not settings.auto_create_tubes:
            return ()
        queue = self._reading.applied
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
