"""The pictures of the console in the documentation: present, small, and of this version."""

import re

import pytest
from PIL import Image

from tests.console.console_pictures import FOLDER, PICTURES, SIZE, SOFTWARE

BYTES_MAX = 150_000
"""Maximum size of a picture in bytes."""


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_shows_this_version(name):
    path = FOLDER / f"{name}.png"
    with Image.open(path) as picture:
        assert picture.size == (SIZE["width"], SIZE["height"])
        assert picture.text["Software"] == SOFTWARE, "run `make pictures`"
    assert path.stat().st_size < BYTES_MAX


def test_the_documentation_shows_only_known_pictures():
    root = FOLDER.parent.parent
    pages = [root / "README.md", *(root / "docs").glob("**/*.md")]
    found = {
        name for page in pages for name in re.findall(r"(console-[a-z-]+)\.png", page.read_text())
    }
    assert found
    assert found <= set(PICTURES)
