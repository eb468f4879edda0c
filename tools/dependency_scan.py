"""Scan all locked dependencies for known vulnerabilities, and print one row for each list.

Python: pip-audit for each file of ``constraints``. Rust: cargo audit for ``edge/Cargo.lock``. Go:
govulncheck for each module. A scanner that is not installed, or cannot reach its database, is a
visible row ``not run``. The exit status is 1 if a scan found a vulnerability.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SCAN_SECONDS_MAX: Final = 600
"""Maximum time of one scan in seconds."""
_FOUND: Final = re.compile(
    r"Found \d+ known vulnerabilit|^\d+ vulnerabilit(?:y|ies) found|error: \d+ vulnerabilit"
    r"|affected by \d+ vulnerabilit",
    re.MULTILINE,
)
"""Texts that pip-audit, cargo audit and govulncheck print if they found a vulnerability."""
_SKIPPED: Final = re.compile(r"could not be audited")
REASON_CHARACTERS_MAX: Final = 120


@dataclass(frozen=True)
class Scan:
    """One scan: the locked list or module, and the command with its folder."""

    subject: str
    command: tuple[str, ...]
    folder: Path = ROOT


@dataclass(frozen=True)
class Row:
    """The result of one scan: ``passed``, ``FAILED`` or ``not run``, with the reason."""

    subject: str
    result: str
    reason: str = ""


def scans(root: Path = ROOT) -> Iterator[Scan]:
    """Yield a scan of each list of locked dependencies and of each Go module."""
    for path in sorted((root / "constraints").glob("*.txt")):
        subject = str(path.relative_to(root))
        options = ("--no-deps", "--disable-pip", "--progress-spinner", "off")
        yield Scan(subject, ("pip-audit", "--requirement", subject, *options), root)
    yield Scan("edge/Cargo.lock", ("cargo-audit", "audit", "--file", "edge/Cargo.lock"), root)
    listed = subprocess.run(
        ("git", "ls-files", "*go.mod"),  # noqa: S607 - as elsewhere, the first git of the PATH
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split():
        yield Scan(name, ("govulncheck", "./..."), (root / name).parent)


def result_of(scan: Scan) -> Row:
    """Run a scan; a scan that cannot judge all dependencies and finds nothing is ``not run``."""
    program = scan.command[0]
    if shutil.which(program) is None:
        return Row(scan.subject, "not run", f"not installed: {program}")
    try:
        done = subprocess.run(
            scan.command,
            cwd=scan.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=SCAN_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return Row(scan.subject, "not run", f"no end within {SCAN_SECONDS_MAX} s")
    output = done.stdout + done.stderr
    if done.returncode != 0 and _FOUND.search(output):
        print(output)
        return Row(scan.subject, "FAILED", f"{program} found vulnerabilities; see above")
    if skipped := len(_SKIPPED.findall(output)):
        return Row(scan.subject, "not run", f"{skipped} dependencies are not in the database")
    if done.returncode != 0:
        lines = output.strip().splitlines() or [f"status {done.returncode}"]
        return Row(scan.subject, "not run", lines[-1][:REASON_CHARACTERS_MAX])
    return Row(scan.subject, "passed")


def main() -> int:
    """Run all scans and print the table; return the exit status."""
    rows = [result_of(scan) for scan in scans()]
    for row in rows:
        print(f"{row.subject:34} {row.result:8} {row.reason}".rstrip())
    count = {result: sum(row.result == result for row in rows) for result in ("FAILED", "not run")}
    print(f"{len(rows)} scans: {count['FAILED']} failed, {count['not run']} not run")
    return 1 if count["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
