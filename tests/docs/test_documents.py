"""Execute the code blocks of the documentation, and check its links."""

import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from tests.docs.documents import (
    FENCE,
    ROOT,
    SHARED_CLUSTER,
    Block,
    Session,
    blocks,
    pages,
    unexplained_blocks,
)
from tools.environment import JAVA_FLOOR, JAVA_HINT, java_version

NEEDS_SPARK = ("docs/pipeline.md", "docs/how-to/queue-to-dashboard.md")
NEEDS_GO = ("docs/how-to/write-a-worker-in-go.md",)
GO_PACKAGES = (
    "google.golang.org/grpc",
    "google.golang.org/genproto/googleapis/rpc/errdetails",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
    "google.golang.org/protobuf/cmd/protoc-gen-go",
)
NEEDS_PROGRAM = {
    "docs/security.md": "openssl",
    "docs/operators-day.md": "openssl",
    **dict.fromkeys(NEEDS_GO, "go"),
}
MARKS = (
    (pytest.mark.spark, NEEDS_SPARK),
    (pytest.mark.nightly, NEEDS_SPARK),  # Spark starts for each of about ten blocks
    (pytest.mark.foreign, NEEDS_GO),
)
PAGES = [str(page.relative_to(ROOT)) for page in pages() if page.exists()]
EXECUTABLE = [
    page
    for page in PAGES
    if any(block.directive != "skip" for block in blocks(page, (ROOT / page).read_text()))
]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
RULE = re.compile(r"\|( :?-+:? \|)+")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page):
    return {anchor(heading) for heading in HEADING.findall(page.read_text())}


@pytest.fixture(scope="module")
def shared_cluster():
    """Return a session with a development cluster, for the pages that share one."""
    command = ".venv/bin/taskraft dev\n"
    with Session() as session:
        session.run(Block("shared cluster", 1, "sh", command, "background", "Ctrl-C"))
        yield session


@pytest.mark.docs
@pytest.mark.cluster
@pytest.mark.timeout(600)  # a page has many blocks, and Spark starts for some of them
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[mark for mark, named in MARKS if page in named])
        for page in EXECUTABLE
    ],
)
def test_the_code_blocks_of_a_page_run(page, request):
    if page in NEEDS_SPARK and java_version() < JAVA_FLOOR:
        pytest.skip(JAVA_HINT)
    program = NEEDS_PROGRAM.get(page)
    if program and shutil.which(program) is None:
        pytest.skip(f"not installed: {program}")
    if page in NEEDS_GO:  # the network of the blocks has no way to the Go module proxy
        # A first compilation may also take longer than a block may take.
        subprocess.run(["go", "build", *GO_PACKAGES], cwd=ROOT / "examples" / "go", check=True)
    content = (ROOT / page).read_text()
    beside = request.getfixturevalue("shared_cluster") if SHARED_CLUSTER in content else None
    with Session(beside) as session:
        worked = [session.run(block) for block in blocks(page, content)]
    assert worked, "a page without blocks is not to be listed here"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_has_a_target(page):
    dead = []
    for link in LINK.findall((ROOT / page).read_text()):
        if "://" in link:
            continue
        name, _, fragment = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES)
def test_every_table_has_a_header(page):
    lines = FENCE.sub("", (ROOT / page).read_text()).splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    begins = [number for number in rows if number - 1 not in rows]
    assert [lines[each] for each in begins if not RULE.fullmatch(lines[each + 1])] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_code_block_is_executed_or_has_a_reason(page):
    assert unexplained_blocks(page, (ROOT / page).read_text()) == []


def test_a_block_without_a_reason_is_reported_with_its_place():
    content = (
        "text\n```go\nmain\n```\n<!-- docs: skip: why -->\n```go\nmain\n```\n```sh\ntrue\n```\n"
    )
    assert unexplained_blocks("page", content) == ["page:2"]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_toml_or_yaml_can_be_read(page):
    readers = {"toml": tomllib.loads, "yaml": yaml.safe_load}
    for language, text in FENCE.findall((ROOT / page).read_text()):
        if language in readers:
            assert readers[language](text)


def test_the_go_of_the_guide_is_a_part_of_the_example():
    worker = (ROOT / "examples" / "go" / "worker.go").read_text()
    (guide,) = NEEDS_GO
    parts = [
        text for language, text in FENCE.findall((ROOT / guide).read_text()) if language == "go"
    ]
    assert len(parts) == 2
    assert [part for part in parts if part not in worker] == []


def test_directives_are_read_with_their_blocks():
    content = (
        "<!-- docs: skip: needs a cluster -->\n```sh\nfalse\n```\n\n"
        "<!-- docs: background until ready -->\n```sh\nserve\n```\n```text\nno\n```\n"
    )
    assert blocks("page", content) == [
        Block("page", 2, "sh", "false\n", "skip", "needs a cluster"),
        Block("page", 7, "sh", "serve\n", "background", "ready"),
    ]


@pytest.mark.real_time
def test_a_failing_block_reports_its_output():
    with Session() as session, pytest.raises(AssertionError, match="page:1: status 1\nreason"):
        session.run(Block("page", 1, "sh", "echo reason; false; true\n"))


@pytest.mark.real_time
def test_a_block_in_the_background_runs_until_the_page_ends():
    text = "trap 'exit 0' INT; echo ready; tail -f /dev/null & wait\n"
    with Session() as session:
        block = Block("page", 1, "sh", text, "background", "ready")
        assert session.run(block) == "ready\n"
        (process,) = session.running
        assert process.poll() is None
    assert process.poll() is not None


@pytest.mark.real_time
def test_the_report_of_a_block_has_the_lines_of_background_blocks(monkeypatch):
    text = "trap 'exit 0' INT; echo serves; tail -f /dev/null & wait\n"
    with Session() as session:
        session.run(Block("page", 1, "sh", text, "background", "serves"))
        with pytest.raises(
            AssertionError, match=r"page:5: status 1\n(?s:.*)page:1 printed:\nserves"
        ):
            session.run(Block("page", 5, "sh", "false\n"))

        def run_too_long(command, **_options):
            raise subprocess.TimeoutExpired(command, 400, output=b"first\n")

        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "run", run_too_long)
            with pytest.raises(
                AssertionError, match=r"page:9: runs too long\nfirst\n(?s:.*)serves"
            ):
                session.run(Block("page", 9, "sh", "sleep infinity\n"))


@pytest.mark.real_time
def test_a_background_block_that_ends_early_fails():
    block = Block("page", 1, "sh", "echo refused\n", "background", "ready")
    with Session() as session, pytest.raises(AssertionError, match="refused"):
        session.run(block)
