"""Execute the code blocks of the documentation, and check its links."""

import re
import shutil

import pytest

from tests.docs.documents import ROOT, Block, Session, blocks, pages
from tools.environment import JAVA_FLOOR, JAVA_HINT, java_version

NEEDS_SPARK = ("docs/pipeline.md",)
NEEDS_PROGRAM = {"docs/security.md": "openssl"}
PAGES = [str(page.relative_to(ROOT)) for page in pages() if page.exists()]
EXECUTABLE = [
    page
    for page in PAGES
    if any(block.directive != "skip" for block in blocks(page, (ROOT / page).read_text()))
]
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page):
    return {anchor(heading) for heading in HEADING.findall(page.read_text())}


@pytest.mark.docs
@pytest.mark.cluster
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.spark if page in NEEDS_SPARK else ())
        for page in EXECUTABLE
    ],
)
def test_the_code_blocks_of_a_page_run(page):
    if page in NEEDS_SPARK and java_version() < JAVA_FLOOR:
        pytest.skip(JAVA_HINT)
    program = NEEDS_PROGRAM.get(page)
    if program and shutil.which(program) is None:
        pytest.skip(f"not installed: {program}")
    with Session() as session:
        worked = [session.run(block) for block in blocks(page, (ROOT / page).read_text())]
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


def test_directives_are_read_with_their_blocks():
    content = (
        "<!-- docs: skip: needs a cluster -->\n```sh\nfalse\n```\n\n"
        "<!-- docs: background until ready -->\n```sh\nserve\n```\n```text\nno\n```\n"
    )
    assert blocks("page", content) == [
        Block("page", 2, "sh", "false\n", "skip", "needs a cluster"),
        Block("page", 7, "sh", "serve\n", "background", "ready"),
    ]


def test_a_failing_block_reports_its_output():
    with Session() as session, pytest.raises(AssertionError, match="page:1: status 1\nreason"):
        session.run(Block("page", 1, "sh", "echo reason; false; true\n"))


def test_a_block_in_the_background_runs_until_the_page_ends():
    text = "trap 'exit 0' INT; echo ready; tail -f /dev/null & wait\n"
    with Session() as session:
        block = Block("page", 1, "sh", text, "background", "ready")
        assert session.run(block) == "ready\n"
        (process,) = session.running
        assert process.poll() is None
    assert process.poll() is not None


def test_a_background_block_that_ends_early_fails():
    block = Block("page", 1, "sh", "echo refused\n", "background", "ready")
    with Session() as session, pytest.raises(AssertionError, match="refused"):
        session.run(block)
