"""Check that the generated references have every command and every part of the contract."""

import re

import pytest

from taskraft.cli import COMMANDS, PLUGIN_COMMANDS, main
from tests.docs.documents import ROOT
from tests.docs.test_features import CONTRACT, names_of
from tools import command_reference, contract_reference, metrics_reference

COMMAND_TEXT = command_reference.text()
CONTRACT_TEXT = contract_reference.text()


def test_each_command_has_one_section():
    headings = re.findall(r"^##+ (taskraft.*)$", COMMAND_TEXT, re.MULTILINE)
    paths = [" ".join(path) for path, _ in command_reference.commands(main, ("taskraft",))]
    assert headings == paths
    assert {f"taskraft {name}" for name in (*COMMANDS, *PLUGIN_COMMANDS)} <= set(headings)


def test_each_section_of_a_command_without_commands_has_an_example():
    sections = re.split(r"^##+ ", COMMAND_TEXT, flags=re.MULTILINE)[1:]
    leaves = [part for part in sections if "COMMAND [ARGS]..." not in part]
    assert leaves
    assert [part.splitlines()[0] for part in leaves if "Example" not in part] == []


def test_each_call_and_each_name_of_the_contract_is_described():
    calls = {
        method.name
        for module in CONTRACT
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    names = {
        name
        for module in CONTRACT
        for message in module.DESCRIPTOR.message_types_by_name.values()
        for name in names_of(message)
    }
    described = set(re.findall(r"`(\w+)`", CONTRACT_TEXT))
    described |= {
        part
        for heading in re.findall(r"^#+ (\S+)$", CONTRACT_TEXT, re.MULTILINE)
        for part in heading.split(".")
    }
    of_maps = {name for name in names if name.endswith("Entry")} | {"key", "value"}
    assert (calls | names) - of_maps - described == set()


def test_each_declaration_of_the_contract_has_a_meaning():
    assert "\n\n\n" not in CONTRACT_TEXT
    assert re.findall(r"^\| `\w+` \|.*\|  \|$", CONTRACT_TEXT, re.MULTILINE) == []


def test_the_table_of_metrics_has_the_labels_and_kinds_of_the_code():
    rows = metrics_reference.text().splitlines()
    assert (
        "| `taskraft_calls_total` | counter | `method`, `outcome` | Calls by method and outcome |"
        in rows
    )
    assert any(row.startswith("| `taskraft_log_syncs_total` | counter | `group` |") for row in rows)
    assert any(row.startswith("| `taskraft_entry_bytes` | histogram | `group` |") for row in rows)
    assert any(row.startswith("| `taskraft_task_attempts` | histogram | `tube` |") for row in rows)


def test_a_metric_without_a_sentence_is_refused(tmp_path):
    code = """import prometheus_client

GaugeMetricFamily("taskraft_x")
"""
    (tmp_path / "metrics.py").write_text(code)
    with pytest.raises(ValueError, match="taskraft_x needs a sentence"):
        metrics_reference.metrics(tmp_path)


@pytest.mark.parametrize(
    ("page", "comment"),
    [(page, f"<!-- generated: {page} -->") for page in ("commands", "contract", "metrics")],
)
def test_a_page_has_the_comment_that_the_build_replaces(page, comment):
    assert (ROOT / "docs" / "reference" / f"{page}.md").read_text().count(comment) == 1
    assert comment in (ROOT / "docs" / "conf.py").read_text()
