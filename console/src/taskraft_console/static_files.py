"""The files of the pages: scripts, styles and pictures, with addresses that change with them."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from taskraft_console.pages.page import url_of

if TYPE_CHECKING:
    from starlette.requests import Request

KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""Media type by the end of a name; other files are text."""


class StaticFiles:
    """All files of the console, in memory.

    Args:
        base_path: prefix of all paths.
    """

    def __init__(self, base_path: str) -> None:
        self._base_path = base_path
        folder = files(__package__) / "static"
        self._files = {
            path.name: path.read_bytes()
            for each in (folder, folder / "vendor")
            for path in each.iterdir()
            if path.is_file()
        }
        self.route: Final = Route("/static/{digest}/{name}", self._send)

    def url(self, name: str) -> str:
        """Return the address of a file; the address changes with the content."""
        digest = hashlib.sha256(self._files[name]).hexdigest()[:12]
        return url_of(self._base_path, "static", digest, name)

    async def _send(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        content = self._files.get(name)
        if content is None:
            return PlainTextResponse("no such file", 404)
        return Response(
            content,
            media_type=KINDS.get(name.rpartition(".")[2], "text/plain"),
            headers={"Cache-Control": "public, max-age=31536000, immutable"},
        )
