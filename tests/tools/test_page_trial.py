"""The quick start and the tutorial run where only wheels are installed."""

import sys
from pathlib import Path

import pytest

from tools.release import page_trial
from tools.release.page_trial import PAGES, PageFailed, blocks_from_wheels, run_pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_the_pages_needs_a_checkout(page):
    texts = [block.text for block in blocks_from_wheels(page, (ROOT / page).read_text())]
    assert any(".venv/bin/taskraft dev" in text for text in texts)
    for name in ("tools", "tests", "examples", "demo"):
        assert not [text for text in texts if f" {name}/" in text or f" -m {name}" in text]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("```sh\ntrue\nmake demo\n```\n", "page:1 calls make"),
        ("```text\nno command\n```\n", "page has no executable block"),
    ],
)
def test_a_page_that_needs_a_checkout_or_runs_nothing_is_refused(content, reason):
    with pytest.raises(PageFailed, match=reason):
        blocks_from_wheels("page", content)


def test_a_skipped_block_may_call_make():
    content = "<!-- docs: skip: why -->\n```sh\nmake demo\n```\n```sh\ntrue\n```\n"
    assert [block.text for block in blocks_from_wheels("page", content)] == ["true\n"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with an environment; the only page is ``page.md`` of the folder."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    monkeypatch.setattr(page_trial, "PAGES", ("page.md",))
    return tmp_path


@pytest.mark.real_time
def test_blocks_run_in_the_folder_with_its_interpreter_and_the_given_variables(folder):
    code = (
        "import os, sys; open('said', 'w').write(f'{sys.executable} {os.environ[\"ONE\"]}'); "
        "assert 'HOME' not in os.environ"
    )
    (folder / "page.md").write_text(f"```python\n{code}\n```\n```sh\ntest -s said\n```\n")
    run_pages(folder, folder, {"ONE": "1", "PATH": "/usr/bin:/bin"})
    assert (folder / "said").read_text() == f"{folder}/.venv/bin/python 1"


@pytest.mark.real_time
def test_a_block_that_fails_is_named_with_its_output(folder):
    (folder / "page.md").write_text("```sh\necho broken\nfalse\n```\n")
    with pytest.raises(PageFailed, match=r"page\.md:1: status 1\nbroken"):
        run_pages(folder, folder, {"PATH": "/usr/bin:/bin"})
