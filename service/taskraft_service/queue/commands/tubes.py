"""Create, empty and remove tubes."""

from __future__ import annotations

from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions, TubeView
from taskraft_service.queue.values import value


@value
class CreateTube:
    """Create a tube. Answer: ``TubeResult``."""

    name: str
    kind: TubeKind
    options: TubeOptions
    if_not_exists: bool = False
    request_id: str = ""
    request_hash: int = 0
    profile: str = ""
    driver: str = ""
    driver_version: int = 0


@value
class DropTube:
    """Remove a tube and its tasks. Answer: ``CountResult``."""

    name: str
    force: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class TruncateTube:
    """Remove all tasks of a tube. Answer: ``CountResult``."""

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class ReleaseAll:
    """Release all taken tasks of a tube. Answer: ``CountResult``."""

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class TubeResult:
    """The tube that exists now."""

    tube: TubeView
    existed: bool = False
