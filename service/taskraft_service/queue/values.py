"""Make immutable values that cost nothing at run time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` an immutable value: frozen by the type checker, free at run time.

    It may be hashed, since nobody changes it; so it may also be a default of other values.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
