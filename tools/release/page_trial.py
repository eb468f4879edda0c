"""Run the quick start and the tutorial in a folder that has only installed wheels.

The code blocks of these pages name programs in ``.venv``, so they need no checkout.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.docs.documents import Block, Session, blocks

PAGES: Final = ("README.md", "docs/tutorial.md")
ENVIRONMENT: Final = ".venv"
TOOLS: Final = ("pytest", "kubernetes-validate")
"""Programs that the tutorial uses, and that no distribution of taskraft needs."""
FROM_WHEELS: Final[Mapping[str, str]] = {"make dev\n": ".venv/bin/taskraft dev\n"}
"""Blocks that need a checkout, each with the block that a user of wheels runs instead."""


class PageFailed(Exception):
    """A code block of a page failed without a checkout; the text names the block."""


def run_pages(source: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Run the blocks of all pages, with one network and one set of background blocks per page.

    Args:
        source: clone with the pages.
        folder: folder with the environment ENVIRONMENT, in which the blocks run.
        variables: environment variables of the blocks.

    Raises:
        PageFailed: a block failed, took too long, or needs a checkout.
    """
    python = str(folder / ENVIRONMENT / "bin" / "python")
    for page in PAGES:
        found = blocks_from_wheels(page, (source / page).read_text())
        try:
            with Session(folder=folder, python=python, variables=variables) as session:
                for block in found:
                    session.run(block)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise PageFailed(str(error)) from error


def blocks_from_wheels(page: str, content: str) -> list[Block]:
    """Return the executable blocks of a page as a user of wheels runs them.

    Raises:
        PageFailed: a block calls make, or the page has no block.
    """
    found = [
        replace(block, text=FROM_WHEELS.get(block.text, block.text))
        for block in blocks(page, content)
        if block.directive != "skip"
    ]
    if not found:
        raise PageFailed(f"{page} has no executable block")
    for block in found:
        if any(line.split()[:1] == ["make"] for line in block.text.splitlines()):
            raise PageFailed(f"{block} calls make, which needs a checkout; see FROM_WHEELS")
    return found
