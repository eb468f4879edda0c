"""The image pipeline: thumbnails in processes, and the sheet after all of them."""

from pathlib import Path

import pytest
from PIL import Image

from examples.image_pipeline.__main__ import draw_samples
from examples.image_pipeline.tasks import SIZE, app, contact_sheet, thumbnail
from taskraft.worker import group


def test_a_picture_is_cut_to_a_square(tmp_path):
    draw_samples(tmp_path, 1)
    with Image.open(thumbnail(str(tmp_path / "00.png"), str(tmp_path))) as made:
        assert made.size == (SIZE, SIZE)


@pytest.mark.taskraft(app=app)
def test_the_sheet_has_all_pictures_that_can_be_read(taskraft, tmp_path):
    draw_samples(tmp_path, 5)
    Path(tmp_path, "broken.png").write_text("no picture")
    app.create_tubes()
    scaled = [thumbnail.plan(str(path), str(tmp_path)) for path in sorted(tmp_path.iterdir())]
    handle = group(scaled).then(contact_sheet.plan(str(tmp_path))).put()
    assert taskraft.run_until_idle().attempts == 7
    with Image.open(handle.result()) as sheet:
        assert sheet.size == (4 * SIZE, 2 * SIZE)
