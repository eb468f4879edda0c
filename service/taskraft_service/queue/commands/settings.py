"""Change settings of the whole cluster, and options of a tube."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.values import value


@value
class Configure:
    """Set what ``settings`` names; ``None`` leaves a setting as it is. Answer: SettingsResult."""

    settings: ReplicatedSettings
    request_id: str = ""
    request_hash: int = 0


@value
class SettingsResult:
    """The settings in force."""

    settings: ReplicatedSettings


@value
class UpdateTube:
    """Set the named options of a tube; those in ``resets`` get the default of the tube's profile.

    Of ``options`` only what ``names`` has counts. Answer: ``TubeResult``.
    """

    name: str
    options: TubeOptions
    names: Sequence[str] = ()
    resets: Sequence[str] = ()
    request_id: str = ""
    request_hash: int = 0
