"""Figures of `taskraft check`: performance data of monitoring plugins, and Prometheus metrics."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from taskraft.cli.figures import BACKLOG, CLOCK, Figure, exposition, of_cluster
from taskraft.cli.health import Threshold
from tests.clients.test_cli_operations import state_of

PERFORMANCE = re.compile(
    r"'(?:[^'=|]|'')+'=-?\d+(?:\.\d+)?(?:s|ms|%|B|c)?"
    r"(?:;[-~:@.\d]*){0,2}(?:;-?[.\d]*){0,2}"
)
"""One figure in the grammar of the guidelines for monitoring plugins."""


def samples_of(text):
    """Return the samples of a page that Prometheus can parse, by name and labels."""
    families = [*text_string_to_metric_families(text)]
    assert all(each.documentation and each.type == "gauge" for each in families)
    assert len({each.name for each in families}) == len(families), "a family in two parts"
    return {
        (sample.name.removeprefix("taskraft_check_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def performance_of(line):
    data = line.rstrip("\n").partition(" | ")[2]
    figures = data.split(" ")
    assert all(PERFORMANCE.fullmatch(each) for each in figures), data
    return figures


def lines_of(state):
    figures = of_cluster(state, Threshold(50, 500), Threshold(0.25, 1))
    return [each.performance_data() for each in figures]


def test_performance_data_follow_the_text(run, emails):
    emails.put_many(["a", "b", "c"])
    emails.bury([3])
    done = run("check tube emails --backlog-warning 1 --age-critical 10m")
    backlog, age, buried = performance_of(done.stdout)
    assert (backlog, buried) == ("'backlog'=2;1;;0", "'buried'=1;0;;0")
    assert re.fullmatch(r"'age'=[\d.]+s;;600;0", age)
    assert done.stdout.count("|") == 1


def test_the_figures_of_a_cluster_have_its_limits(run):
    assert lines_of(state_of(True, True, False, lag=60, clock=-1_500)) == [
        "'leader'=1;;1:;0;1",
        "'voters_active'=2;3:;3:;0;3",
        "'voters'=3;;;0",
        "'lag_n0'=0;50;500;0",
        "'clock_n0'=-1.5s;-0.25:0.25;-1:1",
        "'lag_n1'=60;50;500;0",
        "'clock_n1'=-1.5s;-0.25:0.25;-1:1",
        "'lag_n2'=60;50;500;0",
        "'clock_n2'=-1.5s;-0.25:0.25;-1:1",
    ]
    assert "'voters_active'=4;5:;4:;0;5" in lines_of(state_of(True, True, True, True, False))
    assert "'voters_active'=1;1:;1:;0;1" in lines_of(state_of(True))
    assert lines_of(state_of(True, leader="")) == ["'leader'=0;;1:;0;1"]
    assert performance_of(run("check cluster").stdout)[0] == "'leader'=1;;1:;0;1"


def test_a_check_prints_metrics_with_the_same_exit_code(run, emails):
    emails.put_many(["a", "b"])
    done = run("check tube emails --backlog-critical 1 -o prometheus")
    found = samples_of(done.stdout)
    assert done.exit_code == 2
    assert found["tube_level", "emails"] == 2
    assert found["tube_ready_tasks", "emails"] == 2
    assert found["tube_buried_tasks", "emails"] == 0
    assert ("tube_oldest_ready_seconds", "emails") in found
    done = run("check cluster -o prometheus")
    found = samples_of(done.stdout)
    assert (done.exit_code, found["cluster_level",], found["cluster_leader",]) == (0, 0, 1)
    assert (found["cluster_voters_active",], found["cluster_lag_entries", "memory"]) == (1, 0)


def test_a_check_without_an_answer_has_only_the_level(run, taskraft):
    done = run("check tube missing -o prometheus")
    assert (done.exit_code, samples_of(done.stdout)) == (3, {("tube_level", "missing"): 3})
    assert "|" not in run("check tube missing").stdout
    with taskraft.unreachable():
        done = run("check cluster --timeout 500ms -o prometheus")
    assert (done.exit_code, samples_of(done.stdout)) == (2, {("cluster_level",): 2})


def test_names_are_quoted():
    labels = (("member", "a\\\"\n'b"),)
    figure = Figure(CLOCK, 0.25, labels=labels)
    assert figure.performance_data().startswith("'clock_a\\\"\n''b'=0.25s")
    families = text_string_to_metric_families(exposition([figure]))
    assert [each.labels for family in families for each in family.samples] == [dict(labels)]


def test_the_samples_of_a_metric_follow_each_other():
    one, other = (Figure(BACKLOG, 1, labels=(("tube", name),)) for name in "ab")
    clock = Figure(CLOCK, 0, labels=(("member", "n0"),))
    assert len(samples_of(exposition([one, clock, other]))) == 3


@pytest.mark.parametrize("line", ["check cluster", "check tube emails"])
def test_only_a_check_has_metrics(run, line):
    assert "# HELP" in run(f"{line} -o prometheus").stdout
    refused = run("stats -o prometheus")
    assert (refused.exit_code, refused.stdout) == (2, "")
