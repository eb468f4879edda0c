"""Figures of a health check: performance data of monitoring plugins, and Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from taskraft.cli.health import active_voters, entries_behind, oldest_ready_seconds, voters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from taskraft import TubeStatistics
    from taskraft.cli.health import Level, Threshold
    from taskraft.v1.cluster_service_pb2 import GetClusterStateResponse

PREFIX: Final = "taskraft_check_"
"""Prefix of the metrics, which keeps them apart from the metrics of a node."""


class FigureKind(NamedTuple):
    """What a figure measures."""

    label: str
    """Label in the performance data."""
    metric: str
    """Name of the metric without the prefix."""
    help: str
    unit: str = ""
    """Unit in the performance data: "s", or empty for a number."""


LEADER: Final = FigureKind("leader", "cluster_leader", "1 if the cluster has a leader, else 0.")
VOTERS_ACTIVE: Final = FigureKind(
    "voters_active", "cluster_voters_active", "Voters with which the leader has contact."
)
VOTERS: Final = FigureKind("voters", "cluster_voters", "Voters of the cluster.")
LAG: Final = FigureKind("lag", "cluster_lag_entries", "Log entries that the member lacks.")
CLOCK: Final = FigureKind(
    "clock",
    "cluster_clock_deviation_seconds",
    "Deviation of the member's clock from the leader's clock.",
    "s",
)
BACKLOG: Final = FigureKind("backlog", "tube_ready_tasks", "READY tasks of the tube.")
AGE: Final = FigureKind(
    "age", "tube_oldest_ready_seconds", "Age of the oldest READY task; 0 without a READY task.", "s"
)
BURIED: Final = FigureKind("buried", "tube_buried_tasks", "BURIED tasks of the tube.")
CLUSTER_LEVEL: Final = FigureKind(
    "level", "cluster_level", "Result: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
)
TUBE_LEVEL: Final = CLUSTER_LEVEL._replace(metric="tube_level")


class Figure(NamedTuple):
    """A measured value with its limits.

    The limits are ranges of monitoring plugins: a value outside of the range is a problem. The
    range "10" begins at 0, and "3:" has no end.
    """

    kind: FigureKind
    value: float
    warning: str = ""
    critical: str = ""
    minimum: float | None = 0
    maximum: float | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the metric. A member is also part of the label in the performance data."""

    def performance_data(self) -> str:
        """Return 'label'=value[unit];warning;critical;minimum;maximum without empty ends."""
        name = "_".join((self.kind.label, *(text for key, text in self.labels if key == "member")))
        quoted = "'" + name.replace("'", "''") + "'"
        ends = (self.warning, self.critical, _number(self.minimum), _number(self.maximum))
        value = f"{_number(self.value)}{self.kind.unit}"
        return f"{quoted}={';'.join((value, *ends)).rstrip(';')}"

    def sample(self) -> str:
        """Return the sample line of the Prometheus text format."""
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in self.labels)
        in_braces = f"{{{labels}}}" if labels else ""
        return f"{PREFIX}{self.kind.metric}{in_braces} {_number(self.value)}"


def of_cluster(
    state: GetClusterStateResponse, lag: Threshold, clock_seconds: Threshold
) -> Iterator[Figure]:
    """Yield the figures of a cluster; without an answer of the leader only whether it has one."""
    yield Figure(LEADER, int(bool(state.leader)), critical="1:", maximum=1)
    if not state.leader or state.leader != state.node:
        return
    count = len(voters(state))
    one_more_may_fail = min(count // 2 + 2, count)
    yield Figure(
        VOTERS_ACTIVE,
        len(active_voters(state)),
        warning=f"{count}:",
        critical=f"{one_more_may_fail}:",
        maximum=count,
    )
    yield Figure(VOTERS, count)
    for member in state.members:
        labels = (("member", member.name),)
        behind = entries_behind(state, member)
        yield Figure(LAG, behind, *_upper(lag), labels=labels)
        if member.HasField("wall_deviation_ms"):
            off = member.wall_deviation_ms / 1_000
            warning, critical = (f"-{end}:{end}" if end else "" for end in _upper(clock_seconds))
            yield Figure(CLOCK, off, warning, critical, minimum=None, labels=labels)


def of_tube(
    counts: TubeStatistics,
    now_ms: int,
    *,
    backlog: Threshold,
    age_seconds: Threshold,
    buried: Threshold,
) -> Iterator[Figure]:
    """Yield the figures of a tube at a time of the cluster, in ms since the Unix epoch."""
    labels = (("tube", counts.tube),)
    age = oldest_ready_seconds(counts, now_ms)
    yield Figure(BACKLOG, counts.tasks.ready, *_upper(backlog), labels=labels)
    yield Figure(AGE, age, *_upper(age_seconds), labels=labels)
    yield Figure(BURIED, counts.tasks.buried, *_upper(buried), labels=labels)


def of_level(level: Level, tube: str | None = None) -> Figure:
    """Return the result of a check of a tube; None: of the cluster."""
    if tube is None:
        return Figure(CLUSTER_LEVEL, level)
    return Figure(TUBE_LEVEL, level, labels=(("tube", tube),))


def exposition(figures: Iterable[Figure]) -> str:
    """Return the figures in the Prometheus text format 0.0.4, without a newline at the end."""
    families: dict[FigureKind, list[Figure]] = {}
    for figure in figures:
        families.setdefault(figure.kind, []).append(figure)
    lines: list[str] = []
    for kind, samples in families.items():
        name = f"{PREFIX}{kind.metric}"
        lines += [f"# HELP {name} {kind.help}", f"# TYPE {name} gauge"]
        lines += [each.sample() for each in samples]
    return "\n".join(lines)


def _upper(limits: Threshold) -> tuple[str, str]:
    return _number(limits.warning), _number(limits.critical)


def _number(value: float | None) -> str:
    """Return a number in decimal notation with at most 3 decimals; empty for None."""
    if value is None:
        return ""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
