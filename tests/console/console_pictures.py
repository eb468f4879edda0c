"""Take the pictures of the console in the documentation, from real nodes with a busy day of work.

Run `make pictures`, then look at the changed pictures. `make test` does not collect this file.
"""

import multiprocessing
from importlib.metadata import version
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from demo.busy_day import main as busy_day
from taskraft import Client
from tests.console.browser import opened
from tests.console.conftest import running_console
from tests.turns import blocked_until
from tools.local_cluster import LocalCluster

FOLDER = Path(__file__).parent.parent.parent / "docs" / "pictures"
SAMPLES = 6
SIZE = {"width": 1320, "height": 880}
COLORS = 128
SOFTWARE = f"taskraft-console {version('taskraft-console')}"
"""Text in each picture: the version that the picture shows."""
PICTURES = {
    "console-overview": ("light", "/"),
    "console-tube": ("light", "/tubes/mail.bulk"),
    "console-task": ("light", "/tubes/webhooks/tasks/{buried}"),
    "console-failures": ("dark", "/failures"),
    "console-overview-dark": ("dark", "/"),
}
"""Theme and address of each picture by the name of its file."""
pytestmark = [pytest.mark.cluster, pytest.mark.browser]


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """Run three nodes with a busy day, until the charts have some samples."""
    settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
    with LocalCluster(3, tmp_path_factory.mktemp("pictures"), settings) as cluster:
        cluster.wait_ready()
        context = multiprocessing.get_context("spawn")
        day = context.Process(target=busy_day, args=(["--target", cluster.target],))
        day.start()
        try:
            with Client(cluster.target) as client:
                blocked_until(lambda: client.stats(["webhooks"]).total.tasks.buried > SAMPLES)
                blocked_until(lambda: len(client.history(total=True).at_ms) >= SAMPLES)
                yield cluster, client
        finally:
            day.terminate()
            day.join()


def test_pages_are_pictured(busy, chromium):
    cluster, client = busy
    buried = next(iter(client.tube("webhooks").list("state = BURIED"))).id
    with running_console(cluster.target, "--payloads", "full", "--name", "demo") as console:
        for name, (scheme, path) in PICTURES.items():
            with opened(chromium, console.address, viewport=SIZE, color_scheme=scheme) as page:
                page.goto(console.address + path.format(buried=buried))
                if page.locator("figure.chart").count():
                    page.locator(".u-over").first.wait_for()
                target = FOLDER / f"{name}.png"
                page.screenshot(path=target)
            picture = Image.open(target).convert("RGB").quantize(COLORS)
            note = PngInfo()
            note.add_text("Software", SOFTWARE)
            picture.save(target, optimize=True, pnginfo=note)
            assert len(picture.getcolors()) > SAMPLES
