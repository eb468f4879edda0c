"""The tasks of the pipeline; they run in processes, because scaling needs the processor."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from taskraft.worker import App, Context

SIZE = 160
COLUMNS = 4

app = App("image-pipeline")


# A picture that crashes the process, or needs more than one minute, fails only its own task. A file
# that is no picture is no failure: the sheet is made without it.
@app.task(tube="images", pool="process", time_limit="1m")
def thumbnail(picture: str, folder: str) -> str:
    """Scale one picture to a square, and return the path of the result; "": no picture."""
    target = Path(folder, f"{Path(picture).stem}.thumbnail.png")
    try:
        with Image.open(picture) as opened:
            ImageOps.fit(opened.convert("RGB"), (SIZE, SIZE)).save(target)
    except UnidentifiedImageError:
        return ""
    return str(target)


@app.task(tube="images", pool="process")
def contact_sheet(ctx: Context, folder: str) -> str:
    """Paste all thumbnails on one sheet, and return its path."""
    paths = [part.value for part in ctx.results(str) if part.value]
    rows = -(-len(paths) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * SIZE, max(rows, 1) * SIZE), "white")
    for place, path in enumerate(paths):
        ctx.progress(place / len(paths), path)
        with Image.open(path) as opened:
            sheet.paste(opened, (place % COLUMNS * SIZE, place // COLUMNS * SIZE))
    target = Path(folder, "contact-sheet.png")
    sheet.save(target)
    return str(target)
