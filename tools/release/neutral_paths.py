"""Take the path of the build out of a wheel, because two builds must give equal bytes.

Maturin names the crate of the edge by its absolute path in the bill of materials inside the wheel.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path
from typing import Final

NEUTRAL: Final = b"/taskraft"


def neutralise_paths(wheel: Path, clone: Path) -> None:
    """Replace the path of a clone by NEUTRAL in the bill inside a wheel, and in its RECORD."""
    with zipfile.ZipFile(wheel) as opened:
        infos = opened.infolist()
        contents = {info.filename: opened.read(info) for info in infos}
    (record,) = (name for name in contents if name.endswith(".dist-info/RECORD"))
    for name in [name for name in contents if "/sboms/" in name]:
        contents[name] = contents[name].replace(bytes(clone), NEUTRAL)
        contents[record] = _recorded(contents[record], name, contents[name])
    with zipfile.ZipFile(wheel, "w") as opened:
        for info in infos:
            opened.writestr(info, contents[info.filename], compresslevel=9)


def _recorded(record: bytes, name: str, content: bytes) -> bytes:
    """Return a RECORD with the digest and the size of a changed file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    line = b"%b,sha256=%b,%d" % (name.encode(), digest, len(content))
    changed, count = re.subn(
        rb"^%b,.*$" % re.escape(name.encode()), line, record, flags=re.MULTILINE
    )
    assert count == 1, name
    return changed
