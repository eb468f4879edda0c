"""State where the driver puts what became of a request."""

from __future__ import annotations

from typing import Protocol, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class ResultFuture(Protocol[T_contra]):
    """Somebody who waits; an ``asyncio.Future`` is one, the simulator has its own."""

    def done(self) -> bool:
        """Tell whether the waiting is over, for example because it was cancelled."""

    def set_result(self, result: T_contra, /) -> None:
        """End the waiting with a result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """End the waiting with a failure."""
