"""Define the part of ``asyncio.Future`` through which the driver returns results."""

from __future__ import annotations

from typing import Protocol, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class ResultFuture(Protocol[T_contra]):
    """The result of a request: an ``asyncio.Future``, or the simulator's own class."""

    def done(self) -> bool:
        """Tell whether the result is set, or the request was cancelled."""

    def set_result(self, result: T_contra, /) -> None:
        """Set the result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Set the failure."""
