"""The longest intended wait of the tasks of each tube."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.options import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

DEFAULT_MS: Final = 60_000


@dataclass(slots=True, frozen=True)
class WaitTargets:
    """Targets of waits in ms, at least 0.

    Attributes:
        default_ms: target of a tube that ``tubes`` does not contain.
        tubes: target by name of the tube.

    Raises:
        ValueError: a target is negative.
    """

    default_ms: int = DEFAULT_MS
    tubes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for target_ms in (self.default_ms, *self.tubes.values()):
            if target_ms < 0:
                raise ValueError(f"the target of a wait must be at least 0 ms; got {target_ms}")

    def of(self, tube: str) -> int:
        """Return the target of a tube in ms."""
        return self.tubes.get(tube, self.default_ms)

    def column(self) -> Column:
        """Return the target of the tube of a row, as a Spark expression."""
        usual = F.lit(self.default_ms).cast("bigint")
        if not self.tubes:
            return usual
        pairs = [F.lit(one) for pair in sorted(self.tubes.items()) for one in pair]
        return F.coalesce(F.try_element_at(F.create_map(*pairs), F.col("tube")), usual)

    def to_json(self) -> dict[str, object]:
        """Return the targets as a JSON object."""
        return {"default_ms": self.default_ms, "tubes": dict(sorted(self.tubes.items()))}


def parse_wait_targets(texts: Sequence[str]) -> WaitTargets:
    """Return the targets that texts such as "30s" (all other tubes) and "mail=5s" name.

    Raises:
        OptionInvalid: a text is not a duration.
    """
    default_ms, tubes = DEFAULT_MS, {}
    for text in texts:
        tube, equals, duration = text.rpartition("=")
        target_ms = parse_duration("a target of waits", duration)
        if equals:
            tubes[tube] = target_ms
        else:
            default_ms = target_ms
    return WaitTargets(default_ms, tubes)
