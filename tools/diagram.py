"""Draw boxes and labelled arrows as SVG, at positions that the caller chooses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

LINE_HEIGHT: Final = 15
MARGIN: Final = 4
"""Space between the end of an arrow and its box, in pixels."""
STYLE: Final = """
text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1b2733 }
.name { font-weight: 600 } .small { font-size: 12px; fill: #43525f }
.label { font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 6px;
  stroke-linejoin: round }
.page { fill: #fff } .box { fill: #e8f0fe; stroke: #2f5fa8; stroke-width: 1.5 }
.accent { fill: #fdebd0; stroke: #a8662f; stroke-width: 1.5 }
.quiet { fill: #eef1f4; stroke: #7b8894; stroke-width: 1.5 }
.arrow { fill: none; stroke: #43525f; stroke-width: 1.5; marker-end: url(#head) }
"""


class Point(NamedTuple):
    """A position in pixels, from the upper left corner."""

    x: float
    y: float


class Box(NamedTuple):
    """A rounded rectangle around its centre, with lines of text; the first line is bold."""

    centre: Point
    lines: tuple[str, ...]
    width: float = 110
    height: float = 38
    style: str = "box"

    def contains(self, point: Point) -> bool:
        """Return whether a point is inside the box or its margin."""
        across = abs(point.x - self.centre.x) <= self.width / 2 + MARGIN
        return across and abs(point.y - self.centre.y) <= self.height / 2 + MARGIN


class Diagram:
    """Boxes by name, and arrows between them."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.boxes: dict[str, Box] = {}
        size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
        space = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title}
        self.root = ET.Element("svg", {**space, **size})
        ET.SubElement(self.root, "title").text = title
        ET.SubElement(self.root, "style").text = STYLE
        self._arrow_head()
        page = {"class": "page", "width": str(width), "height": str(height), "rx": "8"}
        ET.SubElement(self.root, "rect", page)

    def box(self, name: str, box: Box) -> None:
        """Draw a box, and remember it under ``name`` for arrows."""
        self.boxes[name] = box
        corner = {"x": _number(box.centre.x - box.width / 2)}
        corner["y"] = _number(box.centre.y - box.height / 2)
        size = {"width": _number(box.width), "height": _number(box.height), "rx": "7"}
        ET.SubElement(self.root, "rect", {"class": box.style, **corner, **size})
        self.text(box.centre, box.lines, styles=("name", "small"))

    def arrow(self, old: str, new: str, lines: Iterable[str], bend: float = 0) -> None:
        """Draw an arrow between two boxes.

        Args:
            old: name of the box where the arrow begins
            new: name of the box where the arrow ends
            lines: lines of the label, in the middle of the arrow
            bend: distance in pixels of the middle from the straight line, to the left of the arrow
        """
        first, last = self.boxes[old], self.boxes[new]
        if first is last:
            self._loop(first, tuple(lines))
            return
        control = _control(first.centre, last.centre, bend)
        curve = [_curve(first.centre, control, last.centre, step / 200) for step in range(201)]
        outside = [
            point for point in curve if not first.contains(point) and not last.contains(point)
        ]
        middle = outside[len(outside) // 2]
        begin, end = outside[0], outside[-1]
        inner = _control(begin, end, _distance(middle, begin, end))
        path = f"M {_pair(begin)} Q {_pair(inner)} {_pair(end)}"
        ET.SubElement(self.root, "path", {"class": "arrow", "d": path})
        self.text(middle, tuple(lines), styles=("label",))

    def text(self, centre: Point, lines: tuple[str, ...], styles: tuple[str, ...]) -> None:
        """Write lines around a centre; the last style holds for all further lines."""
        top = centre.y - LINE_HEIGHT * (len(lines) - 1) / 2 + 4.5
        for number, line in enumerate(lines):
            place = {"x": _number(centre.x), "y": _number(top + LINE_HEIGHT * number)}
            style = styles[min(number, len(styles) - 1)]
            ET.SubElement(self.root, "text", {"class": style, **place}).text = line

    def svg(self) -> str:
        """Return the picture as text."""
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode") + "\n"

    def _loop(self, box: Box, lines: tuple[str, ...]) -> None:
        x, y = box.centre.x, box.centre.y - box.height / 2 - MARGIN
        path = f"M {_number(x - 22)} {_number(y)} c -8 -42 52 -42 44 0"
        ET.SubElement(self.root, "path", {"class": "arrow", "d": path})
        self.text(Point(x, y - 40), lines, styles=("label",))

    def _arrow_head(self) -> None:
        definitions = ET.SubElement(self.root, "defs")
        shape = {"viewBox": "0 0 10 10", "refX": "9", "refY": "5", "orient": "auto"}
        size = {"markerWidth": "8", "markerHeight": "8"}
        marker = ET.SubElement(definitions, "marker", {"id": "head", **shape, **size})
        ET.SubElement(marker, "path", {"d": "M 0 0 L 10 5 L 0 10 z", "fill": "#43525f"})


def _control(begin: Point, end: Point, bend: float) -> Point:
    """Return the control point of a curve whose middle is ``bend`` pixels off the straight line."""
    across, down = end.x - begin.x, end.y - begin.y
    length = math.hypot(across, down) or 1
    middle = Point((begin.x + end.x) / 2, (begin.y + end.y) / 2)
    return Point(middle.x + 2 * bend * down / length, middle.y - 2 * bend * across / length)


def _distance(point: Point, begin: Point, end: Point) -> float:
    """Return the distance of a point from a straight line, above 0 to the left of the line."""
    across, down = end.x - begin.x, end.y - begin.y
    length = math.hypot(across, down) or 1
    return ((point.x - begin.x) * down - (point.y - begin.y) * across) / length


def _curve(begin: Point, control: Point, end: Point, part: float) -> Point:
    """Return the point of a quadratic curve at ``part``, from 0 to 1."""
    rest = 1 - part
    weights = (rest * rest, 2 * rest * part, part * part)
    points = (begin, control, end)
    return Point(
        sum(weight * point.x for weight, point in zip(weights, points, strict=True)),
        sum(weight * point.y for weight, point in zip(weights, points, strict=True)),
    )


def _number(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def _pair(point: Point) -> str:
    return f"{_number(point.x)} {_number(point.y)}"
