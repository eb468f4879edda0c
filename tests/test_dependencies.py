"""Hold the dependencies to their rules: each has a reason, and each is locked with a hash."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECTS = (
    "pyproject.toml",
    "clients/python/pyproject.toml",
    "pipeline/pyproject.toml",
    "console/pyproject.toml",
)
LOCKED = tuple(sorted((ROOT / "constraints").glob("*.txt")))


def requirement_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def requirements_of(project: str) -> list[str]:
    """Return every requirement of a project, groups and extras included."""
    settings = tomllib.loads((ROOT / project).read_text())
    lists = [settings["project"]["dependencies"]]
    lists += settings["project"].get("optional-dependencies", {}).values()
    lists += settings.get("dependency-groups", {}).values()
    return [entry for entries in lists for entry in entries if isinstance(entry, str)]


def locked_names() -> set[str]:
    lines = (line for path in LOCKED for line in path.read_text().splitlines())
    return {requirement_name(line) for line in lines if "==" in line}


@pytest.mark.parametrize("project", PROJECTS)
def test_every_dependency_has_a_reason(project):
    lines = (ROOT / project).read_text().splitlines()
    bare = [
        requirement
        for requirement in requirements_of(project)
        for line in lines
        if line.lstrip().startswith(f'"{requirement}"') and "# " not in line
    ]
    assert bare == []


@pytest.mark.parametrize("project", PROJECTS)
def test_every_dependency_is_locked(project):
    own = {"taskraft", "taskraft-server", "taskraft-pipeline", "taskraft-console", "taskraft-edge"}
    names = {requirement_name(requirement) for requirement in requirements_of(project)}
    assert names - own - locked_names() == set()


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_locked_version_has_a_hash(path):
    locked = re.findall(r"^\S+==(?:.*\\\n)+(?:.*\n)?", path.read_text(), re.MULTILINE)
    assert locked
    assert [entry for entry in locked if "--hash=sha256:" not in entry] == []
