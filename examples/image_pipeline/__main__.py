"""Make a contact sheet of a folder: `python -m examples.image_pipeline FOLDER`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from PIL import Image

from examples.image_pipeline.tasks import app, contact_sheet, thumbnail
from taskraft.worker import Flow, group


def draw_samples(folder: Path, number: int = 12) -> None:
    """Draw pictures for a first try."""
    for place in range(number):
        size = (400 + 40 * place, 300)
        Image.linear_gradient("L").resize(size).rotate(30 * place).save(folder / f"{place:02}.png")


def sheet_of(pictures: Path) -> Flow[str]:
    """Plan one task for each picture of a folder, and one for the sheet."""
    target = tempfile.mkdtemp(prefix="contact-sheet-")
    found = (path.resolve() for path in sorted(pictures.iterdir()))
    scaled = [
        thumbnail.plan(str(path), target)
        for path in found
        if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    ]
    return group(scaled).then(contact_sheet.plan(target))


async def main(pictures: Path) -> None:
    """Run a worker, put the tasks, and wait for the sheet."""
    flow = sheet_of(pictures)
    async with app.running():
        handle = await flow.aput()
        print(f"contact sheet: {await handle.aresult()}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as samples:
            draw_samples(Path(samples))
            asyncio.run(main(Path(samples)))
