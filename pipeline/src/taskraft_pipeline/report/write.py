"""Write a report into a folder, in every form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_pipeline.report import picture
from taskraft_pipeline.report.page import page
from taskraft_pipeline.report.tables import as_json, as_text, csv_files

if TYPE_CHECKING:
    from pathlib import Path

    from taskraft_pipeline.report.figures import Report


def write(report: Report, folder: Path) -> Path:
    """Write report.html, .png, .txt and .json and the tables as CSV; return the HTML file."""
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / "report.png"
    picture.save(report, image)
    for name, content in csv_files(report).items():
        (folder / name).write_text(content)
    (folder / "report.txt").write_text(as_text(report))
    (folder / "report.json").write_text(as_json(report))
    result = folder / "report.html"
    result.write_text(page(report, image.read_bytes()))
    return result
