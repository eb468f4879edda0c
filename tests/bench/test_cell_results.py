"""Combine repetitions into medians with ranges, and print them."""

import json

import pytest

from bench import cell_results
from bench.cell_results import CellResult, MedianRange
from bench.cells import ALL, FLOOR, QUICK, Cell
from bench.load_generator import Run, Window
from bench.machine import Machine
from bench.servers import Use
from bench.table import render, short, with_range

MACHINE = Machine(2, "a processor", "6.1", "3.11.7", "1.80.0", "abc1234", False, 2_048, 200)


def run(tasks, foreign_cpu_percent=0.0, **errors):
    use = Use(
        server_cpu_ms=500,
        foreign_cpu_percent=foreign_cpu_percent,
        steal_percent=0.0,
        syncs=30,
        entries=10,
        resident_mib=100,
    )
    latency = {"put": {"p50_us": 1_500, "p99_us": 9_000}}
    return Run(2.0, tasks, latency, errors, False, 0.25, use)


def outcome(*runs):
    return CellResult(3, Cell("put", "batches"), runs)


def test_a_cell_shows_the_median_of_its_repetitions_with_the_range():
    joined = outcome(run(2_000), run(4_000), run(3_000))
    assert joined.tasks_per_second == MedianRange(1_500, 1_000, 2_000)
    assert joined.server_cpu_ms.least == 125
    assert joined.syncs.most == 15
    assert joined.latency_us("p99_us").median == 9_000


def test_errors_of_all_repetitions_are_counted():
    joined = outcome(run(1, NO_LEADER=2), run(1, NO_LEADER=1, OVERLOADED=4))
    assert joined.errors == {"NO_LEADER": 3, "OVERLOADED": 4}


def test_a_cell_is_doubtful_when_most_of_its_runs_shared_the_machine():
    assert outcome(run(1, 50.0), run(1, 50.0), run(1)).is_doubtful
    assert not outcome(run(1, 50.0), run(1), run(1)).is_doubtful


def test_the_table_names_machine_cells_and_errors():
    text = render(MACHINE, [outcome(run(2_000, NO_LEADER=2))])
    assert "2 cores (a processor), 2 GiB" in text
    assert "### 3 nodes" in text
    assert "| (c) put  | 1.0k" in text
    assert "NO_LEADER 2" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0"), (0.054, "0.05"), (3.24, "3.2"), (420.4, "420"), (7_140, "7.1k"), (38_400, "38k")],
)
def test_numbers_show_the_digits_that_matter(value, text):
    assert short(value) == text


def test_a_single_measurement_has_no_range():
    assert with_range(MedianRange.of([5.0])) == "5.0"
    assert with_range(MedianRange.of([5.0, 7.0])) == "6.0 (5.0..7.0)"


def test_results_are_saved_with_machine_and_single_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_results, "FOLDER", tmp_path)
    path = cell_results.save("here", MACHINE, Window(400, 1_500), [outcome(run(2_000))])
    saved = json.loads(path.read_text())
    assert saved["machine"]["commit"] == "abc1234"
    assert saved["cells"][0]["tasks_per_second"]["median"] == 1_000
    assert saved["cells"][0]["runs"][0]["use"]["syncs"] == 30


def test_every_cell_has_a_name_of_its_own():
    assert len({cell.name for cell in ALL}) == len(ALL)
    assert set(QUICK) <= set(ALL)
    assert set(FLOOR) <= set(ALL)
