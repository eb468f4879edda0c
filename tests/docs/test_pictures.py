"""Check that the pictures are current, and that each table of the code is drawn completely."""

import re
from xml.etree import ElementTree as ET

import pytest

from taskraft_replication.core.roles import ROLE_CHANGES
from taskraft_service.leader.node_phases import PHASE_TRANSITIONS
from taskraft_service.queue.entities.life_cycle import LIFE_CYCLE, Operation
from taskraft_service.queue.entities.task_state import State
from tools import first_minute, generated_pages, pictures, put_picture, rate_picture
from tools.diagram import Box, Diagram, Point
from tools.generated_pages import GeneratedFile


def test_a_file_of_another_version_is_reported_with_its_program(tmp_path):
    path = tmp_path / "picture.svg"
    one = GeneratedFile(path, "new", "tools.pictures")
    assert not one.is_current
    path.write_text("old")
    assert not one.is_current
    path.write_text("new")
    assert one.is_current


@pytest.mark.real_time  # asks git which results of drills are part of the repository
def test_every_generated_file_is_of_this_version():
    assert generated_pages.complaints() == []


@pytest.mark.parametrize("path", [*pictures.PICTURES.glob("*.svg")], ids=lambda path: path.name)
def test_a_drawing_has_a_background_of_its_own_for_dark_and_light_pages(path):
    root = ET.fromstring(path.read_text())
    page = next(each for each in root.iter() if each.get("class") == "page")
    assert (page.get("width"), page.get("height")) == (root.get("width"), root.get("height"))
    assert re.search(r"\.page \{ fill: #(fff|16202b)\b", path.read_text())


def test_there_are_no_other_drawings():
    drawn = {path for path in pictures.files() if path.suffix == ".svg"}
    assert {*pictures.PICTURES.glob("*.svg")} == drawn


def test_the_page_of_the_life_cycle_has_every_transition():
    page = pictures.life_cycle_page()
    rows = re.findall(r"^\| (—|[A-Z]+) \| ([A-Z]+) \| (.+) \|$", page, re.MULTILINE)
    listed = {
        (State.GONE if old == "—" else State[old], Operation[operation]): State[new]
        for old, new, operations in rows
        for operation in re.findall(r"`(\w+)`", operations)
    }
    assert listed == dict(LIFE_CYCLE)


@pytest.mark.parametrize(
    ("drawing", "edges"),
    [
        (pictures.roles, ROLE_CHANGES.keys()),
        (pictures.phases, {(old, new) for (old, _), new in PHASE_TRANSITIONS.items()}),
    ],
)
def test_a_picture_has_one_arrow_for_each_pair(drawing, edges):
    arrows = re.findall(r'<path class="arrow"', drawing().svg())
    assert len(arrows) == len(edges)


def test_an_arrow_ends_at_the_edges_of_its_boxes():
    diagram = Diagram(400, 100, "two boxes")
    diagram.box("a", Box(Point(60, 50), ("a",), 80, 40))
    diagram.box("b", Box(Point(340, 50), ("b",), 80, 40))
    diagram.arrow("a", "b", ("label",))
    path = re.search(r'd="M ([\d.]+) 50 Q [\d.]+ 50 ([\d.]+) 50"', diagram.svg())
    begin, end = map(float, path.groups())
    assert 100 <= begin <= 110
    assert 290 <= end <= 300


def test_the_way_of_a_put_names_the_functions_of_the_code():
    drawn = put_picture.way_of_a_put().svg()
    assert "core.leader.advance_commit" in drawn
    assert all(step.code in drawn for step in put_picture.STEPS)
    names = {name for arrow in put_picture.ARROWS for name in arrow[:2]}
    assert {step.name for step in put_picture.STEPS} <= names


def test_the_curve_has_two_lines_with_a_spot_for_each_rate_and_says_how_busy_the_machine_was():
    points = [
        {"rate": 50, "p50_ms": 1.0, "p99_ms": 3.0, "foreign_percent": 2.0},
        {"rate": 500, "p50_ms": 2.0, "p99_ms": 8.0, "foreign_percent": 1.0},
        {"rate": 5_000, "p50_ms": 40.0, "p99_ms": 90.0, "foreign_percent": 31.4},
    ]
    drawing = rate_picture.drawn({"machine": {"commit": "abc"}, "points": points}).svg()
    spots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing)
    assert [float(x) for x, _ in spots] == [80.0, 385.0, 690.0] * 2
    heights = [float(y) for _, y in spots]
    assert heights == sorted(heights[:3], reverse=True) + sorted(heights[3:], reverse=True)
    assert all(upper < lower for lower, upper in zip(heights[:3], heights[3:], strict=True))
    assert "commit abc; other programs used 1 to 31 % of the machine" in drawing


def test_the_recording_has_the_commands_of_the_readme_and_their_output():
    commands = [command for command, _ in first_minute.transcript()]
    assert [command.split()[1] for command in commands] == ["put", "take", "stats"]
    shown = [each.text for each in ET.fromstring(first_minute.recording()) if each.text]
    assert {f"$ {command}" for command in commands} <= set(shown)
    assert "hello/1  READY" in shown
