"""Write the bills of materials of a release in the format CycloneDX."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.release.wheels import EDGE, FOLDERS, ReleaseFailed, run

LOCKS: Final[Mapping[str, str]] = {
    "taskraft": "client",
    "taskraft_server": "service",
    "taskraft_console": "console",
    "taskraft_pipeline": "pipeline",
}
"""File of ``constraints/`` with the dependencies of each distribution."""
SUFFIX: Final = ".cdx.json"


def write_bills(clone: Path, folder: Path) -> None:
    """Write one bill beside each wheel in ``folder``, from the locked versions of a clone.

    Raises:
        ReleaseFailed: a bill could not be written.
    """
    program = str(Path(sys.executable).with_name("cyclonedx-py"))
    for name, project in FOLDERS.items():
        (wheel,) = folder.glob(f"{name}-*.whl")
        command = [program, "requirements", "--output-reproducible", "--mc-type", "library"]
        command += ["--pyproject", f"{project}/pyproject.toml"]
        command += [
            "--output-file",
            str(bill_of(wheel).resolve()),
            f"constraints/{LOCKS[name]}.txt",
        ]
        run(command, clone, {})
    for wheel in folder.glob(f"{EDGE}-*.whl"):
        bill_of(wheel).write_bytes(_bill_inside(wheel))


def bill_of(wheel: Path) -> Path:
    """Return the path of the bill beside a wheel."""
    return wheel.with_name("-".join(wheel.name.split("-")[:2]) + SUFFIX)


def _bill_inside(wheel: Path) -> bytes:
    """Return the bill that maturin wrote into the wheel of the edge: its crates.

    Raises:
        ReleaseFailed: the wheel has no bill.
    """
    with zipfile.ZipFile(wheel) as opened:
        for name in opened.namelist():
            if "/sboms/" in name and name.endswith(".cyclonedx.json"):
                return opened.read(name)
    raise ReleaseFailed(f"{wheel.name} has no bill of materials")
