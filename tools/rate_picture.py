"""Draw the latency of deliveries over the rate of puts: docs/pictures/rate-curve.svg.

The points are those of ``bench/results/rate_curve.json`` (`python -m bench.rate_curve` writes it).
Both axes are logarithmic. The last point is the first rate that saturates the nodes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from tools.diagram import Diagram, Point

RESULT: Final = Path(__file__).parents[1] / "bench" / "results" / "rate_curve.json"
WIDTH: Final = 760
HEIGHT: Final = 400
LEFT: Final = 80.0
RIGHT: Final = 690.0
TOP: Final = 60.0
BOTTOM: Final = 330.0
MS_MIN: Final = 0.5
LINES_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Latencies with a line, in ms; the picture ends at the first line above all points."""
KNEE_SHARE: Final = 0.7
"""Share of the saturating rate below which the curve must have no knee."""

Row = Mapping[str, Any]  # a point of the result, from JSON


def rate_curve() -> Diagram:
    """Return the picture of the stored result."""
    return drawn(json.loads(RESULT.read_text()))


def drawn(result: Mapping[str, Any]) -> Diagram:
    """Return the picture of a result."""
    rows: Sequence[Row] = result["points"]
    last = float(rows[-1]["rate"])
    highest = max(row["p99_ms"] for row in rows)
    ms_max = next((line for line in LINES_MS if line >= highest), highest)

    def across(rate: float) -> float:
        share = math.log(rate / rows[0]["rate"]) / math.log(last / rows[0]["rate"])
        return LEFT + (RIGHT - LEFT) * share

    def down(ms: float) -> float:
        share = math.log(max(ms, MS_MIN) / MS_MIN) / math.log(ms_max / MS_MIN)
        return BOTTOM - (BOTTOM - TOP) * share

    diagram = Diagram(WIDTH, HEIGHT, "Latency from planned put to delivery, over the rate of puts")
    machine = result["machine"]
    foreign = [row["foreign_percent"] for row in rows]
    others = f"{min(foreign):.0f} to {max(foreign):.0f} % of the machine"
    heads = (
        "Planned put to delivery, three nodes on two cores",
        f"commit {machine['commit']}; other programs used {others}",
    )
    diagram.text(Point(WIDTH / 2, 26), heads, styles=("name", "small"))
    for ms in LINES_MS:
        if ms <= ms_max:
            _line(diagram, (LEFT, down(ms)), (RIGHT, down(ms)))
            diagram.text(Point(LEFT - 32, down(ms)), (f"{ms} ms",), styles=("small",))
    for row in rows:
        diagram.text(Point(across(row["rate"]), BOTTOM + 18), (str(row["rate"]),), ("small",))
    knee = across(max(KNEE_SHARE * last, rows[0]["rate"]))
    _line(diagram, (knee, TOP), (knee, BOTTOM))
    diagram.text(Point(knee, TOP - 8), ("70 % of the last rate",), styles=("small",))
    diagram.text(Point(WIDTH / 2, BOTTOM + 46), ("puts per second",), styles=("small",))
    for name in ("p50", "p99"):
        spots = [(across(row["rate"]), down(row[f"{name}_ms"])) for row in rows]
        path = "M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in spots)
        ET.SubElement(diagram.root, "path", {"style": _stroke(name), "fill": "none", "d": path})
        for x, y in spots:
            spot = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3", "class": "box"}
            ET.SubElement(diagram.root, "circle", spot)
        diagram.text(Point(RIGHT + 30, spots[-1][1]), (name,), styles=("name",))
    return diagram


def _stroke(name: str) -> str:
    return f"stroke: {'#2f5fa8' if name == 'p50' else '#a8662f'}; stroke-width: 2"


def _line(diagram: Diagram, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a thin line of the grid."""
    names = ("x1", "y1", "x2", "y2")
    place = {name: f"{value:.1f}" for name, value in zip(names, (*begin, *end), strict=True)}
    ET.SubElement(diagram.root, "line", {"style": "stroke: #c3ccd5; stroke-width: 1", **place})
