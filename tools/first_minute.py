"""Record the first commands of the README as an animated picture: docs/pictures/first-minute.svg.

The commands run against a node in memory, so that the recording has what this version prints. See
``tools.pictures``.
"""

import re
import shlex
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from click.testing import CliRunner

from taskraft.cli import main
from taskraft.testing import Kit

README: Final = Path(__file__).parent.parent / "README.md"
COMMAND: Final = re.compile(r"^\.venv/bin/(taskraft (?:put|take|stats) .+)$", re.MULTILINE)
TUBE: Final = "hello"
LINE: Final = 20
CHARACTER: Final = 7.5
"""Width of a character in pixels, at most, in the fonts of STYLE."""
MARGIN: Final = 18
TYPING_SECONDS: Final = 2.0
"""Time between two commands."""
ANSWER_SECONDS: Final = 0.8
"""Time from a command to its output."""
KEEP_SPACES: Final = {"{http://www.w3.org/XML/1998/namespace}space": "preserve"}
"""For renderers of SVG 1.1, which do not know `white-space`."""
STYLE: Final = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre;
  fill: #d7e0ea }
.page { fill: #16202b; stroke: #43525f } .command { fill: #ffd9a0 }
@media (prefers-reduced-motion: no-preference) {
  text { animation: appear 0.1s both } @keyframes appear { from { opacity: 0 } }
}
"""


class CommandFailed(Exception):
    """A command of the README failed on the node in memory; the text is its output."""


def transcript() -> list[tuple[str, str]]:
    """Return the commands of the README's first minute, each with its output.

    Raises:
        CommandFailed: a command did not exit with status 0.
    """
    found = []
    with Kit() as kit:
        kit.client.create_tube(TUBE)  # `taskraft dev` creates a missing tube with the first put
        for line in COMMAND.findall(README.read_text()):
            done = CliRunner().invoke(main, shlex.split(line)[1:])
            if done.exit_code != 0:
                raise CommandFailed(f"{line}\n{done.output}")
            found.append((line, done.output))
    return found


def recording() -> str:
    """Return the picture: each command appears, then its output."""
    lines: list[tuple[str, str, float]] = []
    for number, (command, output) in enumerate(transcript()):
        begin = 0.5 + number * TYPING_SECONDS
        lines.append((f"$ {command}", "command", begin))
        lines += ((each, "output", begin + ANSWER_SECONDS) for each in output.splitlines())
    width = 2 * MARGIN + CHARACTER * max(len(text) for text, _, _ in lines)
    height = 2 * MARGIN + LINE * len(lines)
    size = {"width": f"{width:.0f}", "height": f"{height}"}
    title = "The first task: put, take and count"
    space = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title}
    root = ET.Element("svg", {**space, **size, "viewBox": f"0 0 {width:.0f} {height}"})
    ET.SubElement(root, "title").text = title
    ET.SubElement(root, "style").text = STYLE
    ET.SubElement(root, "rect", {"class": "page", **size, "rx": "8"})
    for row, (text, style, seconds) in enumerate(lines):
        place = {"x": str(MARGIN), "y": str(MARGIN + LINE * row + 14)}
        delay = {"style": f"animation-delay: {seconds:.1f}s"}
        ET.SubElement(root, "text", {"class": style, **KEEP_SPACES, **place, **delay}).text = text
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"
