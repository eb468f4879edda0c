"""Check that workflows and commit hooks parse, and run targets of the Makefile only.

The only other command of a workflow installs Debian packages.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.nightly.__main__ import parts
from tools.environment import PYTHON_FLOOR

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
MAKEFILE = (ROOT / "Makefile").read_text()
INSTALLATION = "sudo apt-get install --yes --no-install-recommends "
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
"""An action by the full hash of a commit, with the version of the commit as a comment."""
EXPRESSION = re.compile(r"\$\{\{.*?\}\}|\$\(\(.*?\)\)")


def targets():
    """Return the targets of the Makefile, each with the targets that it depends on."""
    rules = re.findall(r"^([a-z][a-z0-9-]*):(?!=)([^#\n]*)", MAKEFILE, re.MULTILINE)
    return {name: prerequisites.split() for name, prerequisites in rules}


def goals(command):
    """Return the targets that a `make` command names; fail if it runs another program."""
    # A computed argument contains spaces in the workflow, but none when it runs.
    program, *arguments = shlex.split(EXPRESSION.sub("computed", command))
    assert program == "make", f"not a make command: {command}"
    return [word for word in arguments if "=" not in word and not word.startswith("-")]


def commands(workflow):
    """Return every command that a workflow runs, without the installation of Debian packages."""
    parts = yaml.safe_load(workflow.read_text())["jobs"].values()
    runs = [step["run"] for part in parts for step in part["steps"] if "run" in step]
    return [command for command in runs if not command.startswith(INSTALLATION)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_of_the_makefile(workflow):
    named = [goal for command in commands(workflow) for goal in goals(command)]
    assert named
    assert set(named) <= set(targets())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_each_action_is_pinned_to_a_commit_with_its_version_beside(workflow):
    """A tag of an action can be moved to other code."""
    uses = re.findall(r"uses: (.*)", workflow.read_text())
    assert uses
    assert [one for one in uses if not PINNED.fullmatch(one)] == []


def test_the_versions_of_the_native_edge_are_locked_without_the_address_of_a_mirror():
    lock = (ROOT / "edge" / "Cargo.lock").read_text()
    sources = set(re.findall(r'^source = "(.*)"$', lock, re.MULTILINE))
    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}


def test_the_workflows_cover_checks_tests_long_runs_and_releases():
    named = {goal for path in WORKFLOWS for command in commands(path) for goal in goals(command)}
    assert named >= {"check", "docs", "test", "sim", "nightly", "release"}


def test_the_nightly_workflow_runs_each_part():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yaml").read_text())
    named = " ".join(workflow["jobs"]["parts"]["strategy"]["matrix"]["only"]).split()
    assert sorted([*named, "simulation"]) == sorted(part.name for part in parts(0))


def test_the_tests_run_on_the_oldest_supported_python_and_on_later_ones():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yaml").read_text())
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert versions[0] == ".".join(map(str, PYTHON_FLOOR))


def test_the_hooks_run_each_part_of_the_check_and_download_nothing():
    assert [repository["repo"] for repository in HOOKS] == ["local"]
    hooks = HOOKS[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system", "pygrep"}
    system = [hook["entry"] for hook in hooks if hook["language"] == "system"]
    named = [goal for entry in system for goal in goals(entry)]
    assert sorted(named) == sorted(targets()["check"])


def test_each_hook_is_run_for_files_that_exist():
    names = [str(path.relative_to(ROOT)) for path in ROOT.glob("*") if path.is_file()]
    for folder in ("proto", "k8s", "edge/src", "tests/packaging", "clients/python/src/taskraft/v1"):
        names += [str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*")]
    patterns = [hook["files"] for hook in HOOKS[0]["hooks"] if "files" in hook]
    idle = [files for files in patterns if not any(re.search(files, name) for name in names)]
    assert patterns
    assert idle == []


@pytest.mark.parametrize("form", [each for each in FORMS if each.stem != "config"])
def test_an_issue_form_asks_for_something(form):
    content = yaml.safe_load(form.read_text())
    assert content["name"]
    assert content["description"]
    required = [each for each in content["body"] if each.get("validations", {}).get("required")]
    assert required


def test_a_command_that_is_not_make_is_found():
    with pytest.raises(AssertionError, match="not a make command"):
        goals("pip install taskraft")
    assert goals("make sim SEEDS=$((2 * 3)) ARGS='--trace on'") == ["sim"]
