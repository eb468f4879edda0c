"""Differences between a tube as it was requested and an existing tube with the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS_PATH: Final = "tube.options."
"""Prefix of the path of an option in a CreateTubeRequest."""


class TubeDiffers(UserWarning):
    """A tube exists with other options than `create_tube(if_not_exists=True)` has named.

    Attributes:
        tube: name of the tube.
        differences: names of the options in force that differ, for example "ttr".
    """

    def __init__(self, tube: str, paths: Sequence[str]) -> None:
        self.tube: Final = tube
        self.differences: Final = tuple(map(_option, paths))
        super().__init__(
            f"the tube {tube!r} exists with another {text_of_differences(paths)}; "
            "ensure_tube() brings the given options into force"
        )


def text_of_differences(paths: Sequence[str]) -> str:
    """Return the names of the differing options for people."""
    return ", ".join(map(_option, paths))


def _option(path: str) -> str:
    """Return the argument of `create_tube` for a path."""
    return path.removeprefix(OPTIONS_PATH).removeprefix("tube.").removesuffix("_ms")
