"""Find pages and pictures that differ from what their programs would write now."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools import (
    configuration_page,
    errors_page,
    faults_table,
    pictures,
    reliability_table,
    rights_table,
)
from tools.drill_records import records


class GeneratedFile(NamedTuple):
    """A file of the repository, the text that its program writes now, and the program."""

    path: Path
    text: str
    program: str

    @property
    def is_current(self) -> bool:
        """Whether the file has the text; False if the file does not exist."""
        return self.path.is_file() and self.path.read_text() == self.text


def generated_files() -> Iterator[GeneratedFile]:
    """Yield every generated page and picture of the documentation."""
    for path, text in pictures.files().items():
        yield GeneratedFile(path, text, pictures.__name__)
    for whole in (configuration_page, errors_page):
        yield GeneratedFile(whole.PAGE, whole.page(), whole.__name__)
    for part in (faults_table, rights_table):
        yield GeneratedFile(part.PAGE, part.page(part.PAGE.read_text()), part.__name__)
    runs = [*records(reliability_table.tracked_files())]
    table = reliability_table.page(reliability_table.PAGE.read_text(), runs)
    yield GeneratedFile(reliability_table.PAGE, table, reliability_table.__name__)


def complaints() -> list[str]:
    """Return a line for each file that is not of this version, with the command that writes it."""
    return [
        f"{each.path} is not of this version; run `python -m {each.program}`"
        for each in generated_files()
        if not each.is_current
    ]
