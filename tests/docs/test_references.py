"""Check that every file, module, make target and variable named on a page exists."""

import importlib
import re
from functools import cache

import pytest

from tests.docs.documents import ROOT, pages

SERVICE = ROOT / "service" / "taskraft_service"
REPLICATION = ROOT / "replication" / "taskraft_replication"
CHECKED = [*pages(), ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md"]
NAMES = [str(page.relative_to(ROOT)) for page in CHECKED]
SUFFIXES = ("py", "md", "txt", "proto", "toml", "yaml", "yml", "json", "go", "js")
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(rf"[\w.-]+(/[\w.-]+)*\.({'|'.join(SUFFIXES)})")
FOLDERS = (
    "service",
    "replication",
    "clients",
    "pipeline",
    "console",
    "tests",
    "bench",
    "tools",
    "docs",
    "examples",
    "k8s",
    "edge",
)
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
MODULE = re.compile(r"(?:taskraft_service|taskraft_replication|tests|tools|bench)(?:\.\w+)+")
RUN = re.compile(r"python -m ([a-z_]+(?:\.[a-z_]+)*)")
TARGET = re.compile(r"(?:`|^|\s)make ([a-z][a-z-]*)(?=[`\s])", re.MULTILINE)
FENCED = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\bTASKRAFT_[A-Z][A-Z_]*[A-Z]\b(?!_)")
ELSEWHERE = frozenset(
    {
        "access.toml",
        "my_package.stacks",
        "report.json",
        "access.json",
        "_journal.json",
    }
)
"""Files that users write; the pages describe them."""


@cache
def files():
    """Return all files and folders of the repository, relative to its root."""
    found = set()
    for folder in (*FOLDERS, "proto", "demo", "constraints", ".github", ".ci"):
        for path in (ROOT / folder).rglob("*"):
            if not {"__pycache__", "node_modules", "target"} & set(path.parts):
                found.add(str(path.relative_to(ROOT)))
    found |= {path.name for path in ROOT.iterdir()}
    return frozenset(found)


@cache
def sources():
    """Return the text of all sources that read settings."""
    folders = ("service", "replication", "clients", "pipeline", "console", "tools", "demo", "bench")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    paths += [
        ROOT / "tests" / "conftest.py",
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
        ROOT / "Dockerfile",
    ]
    paths += list((ROOT / "k8s").rglob("*.yaml")) + list((ROOT / "k8s").rglob("*.env"))
    paths += (ROOT / "examples" / "go").glob("*.go")
    return "\n".join(path.read_text() for path in paths if path.is_file())


def exists(name):
    """Return whether the repository has a path, from its root or from a folder in it."""
    name = name.rstrip("/")
    return name in files() or any(known.endswith(f"/{name}") for known in files())


def has_test(file, test):
    """Return whether a file of the repository defines a test."""
    path = ROOT / file
    return path.is_file() and re.search(rf"def {test}\(", path.read_text()) is not None


def imports(name):
    """Return whether a dotted name is a module or a name in a module."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def is_variable(name):
    """Return whether a node setting or an environment variable has this name."""
    return name in sources() or name.removeprefix("TASKRAFT_").lower() in sources()


def is_path(text):
    """Return whether a quoted text names a file or folder of the repository."""
    if text in ELSEWHERE or not re.fullmatch(r"[\w./-]+", text) or text.startswith("/"):
        return False
    begins = text.split("/")[0] in FOLDERS and "/" in text
    return begins or PATH.fullmatch(text) is not None


def targets():
    """Return the targets of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", NAMES)
def test_every_path_that_a_page_names_exists(page):
    quoted = QUOTED.findall((ROOT / page).read_text())
    assert [text for text in quoted if is_path(text) and not exists(text)] == []


@pytest.mark.parametrize("page", NAMES)
def test_every_test_that_a_page_names_exists(page):
    quoted = QUOTED.findall((ROOT / page).read_text())
    named = [text.split("::") for text in quoted if TEST.fullmatch(text)]
    assert [[file, test] for file, test in named if not has_test(file, test)] == []


@pytest.mark.parametrize("page", NAMES)
def test_every_module_that_a_page_names_can_be_imported(page):
    text = (ROOT / page).read_text()
    quoted = "\n".join(QUOTED.findall(text))
    modules = {*MODULE.findall(quoted), *RUN.findall(text)}
    assert [name for name in sorted(modules) if not imports(name)] == []


@pytest.mark.parametrize("page", NAMES)
def test_every_make_target_that_a_page_names_exists(page):
    text = (ROOT / page).read_text()
    code = "\n".join(f"`{quoted}`" for quoted in QUOTED.findall(text)) + "\n".join(
        FENCED.findall(text)
    )
    assert set(TARGET.findall(code)) <= targets()


@pytest.mark.parametrize("page", NAMES)
def test_every_variable_that_a_page_names_is_read_somewhere(page):
    named = set(VARIABLE.findall((ROOT / page).read_text()))
    assert [name for name in sorted(named) if not is_variable(name)] == []


@pytest.mark.parametrize("package", [SERVICE, REPLICATION], ids=lambda path: path.name)
def test_the_picture_of_the_packages_shows_each_package_once(package):
    picture = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    other = (SERVICE, REPLICATION)[package == SERVICE]
    heading, following = (f"{each.parent.name}/{each.name}" for each in (package, other))
    section = picture.split(heading)[1].split(following)[0]
    shown = re.findall(r"^   (\w+)/ ", section, re.MULTILINE)
    packages = [path.parent.name for path in package.glob("*/__init__.py")]
    assert sorted(shown) == sorted(packages)


def test_the_table_of_the_queue_core_lists_each_module_and_package_once():
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.split("## Inside the queue core")[1].split("\n## ")[0]
    shown = re.findall(r"`(\w+(?:/|\.py))`", section)
    folder = SERVICE / "queue"
    packages = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert sorted(shown) == sorted(packages + modules)


def test_names_that_do_not_exist_are_found():
    assert not exists("service/taskraft_service/queue/intake.py")
    assert exists("taskraft_service/queue/queue.py")
    assert not imports("taskraft_service.queue.nothing_here")
    assert imports("taskraft_service.queue.queue.Queue")
    assert is_path("docs/nothing.md")
    assert not is_path("application/json")
    assert not is_variable("TASKRAFT_NOTHING_AT_ALL")
    assert TARGET.findall("`make report`") == ["report"]
