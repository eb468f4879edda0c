"""Define immutable value classes without the runtime cost of frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a dataclass that the type checker treats as frozen.

    No run-time check prevents a change. Values are hashable, so they can be dataclass defaults.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
