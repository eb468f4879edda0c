"""Build the native edge and install it into the virtual environment (instant if nothing changed).

This program uses only the standard library. The wheel works with every Python from 3.11 on. With
the option ``--crates``, the program only downloads the crates that the build needs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.environment import digest, install, install_with, is_current

SOURCES: Final = Path("edge")
MANIFEST: Final = SOURCES / "Cargo.toml"
WHEELS: Final = Path("var/native")
DOWNLOAD_SECONDS_MAX: Final = 300
MANIFEST_ERRORS: Final = (
    "failed to parse manifest",
    "failed to select a version",
    "no matching package",
)
"""Texts of cargo about an error in the manifest, which another try does not mend."""


def rust_floor() -> tuple[int, ...]:
    """Return the oldest version of Rust that builds the edge."""
    found = re.search(r'^rust-version = "([0-9.]+)"$', MANIFEST.read_text(), re.MULTILINE)
    assert found is not None, "the manifest names a version"
    return tuple(int(part) for part in found[1].split("."))


def is_recent(cargo_version: str) -> bool:
    """Return whether the output of ``cargo --version`` names a version that builds the edge."""
    found = re.match(r"cargo (\d+)\.(\d+)", cargo_version)
    return found is not None and (int(found[1]), int(found[2])) >= rust_floor()


def download_crates() -> str:
    """Download the crates; return the reason if the edge cannot be built on this machine now.

    The build reports an error in the manifest, so such an error is not returned.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        return "cargo is not installed"
    version = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=False)
    if not is_recent(version.stdout):
        floor = ".".join(map(str, rust_floor()))
        return f"cargo is older than {floor}: {version.stdout.strip()}"
    command = [cargo, "fetch", "--quiet", "--locked", "--manifest-path", str(MANIFEST)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return f"cargo did not download the crates within {DOWNLOAD_SECONDS_MAX} s"
    if done.returncode == 0 or any(text in done.stderr for text in MANIFEST_ERRORS):
        return ""
    return f"cargo cannot download the crates: {done.stderr.strip()}"


def build(environment: Path) -> None:
    """Build the wheel and install it; exit if cargo is missing or the build fails."""
    sources = sorted(path for path in SOURCES.glob("src/**/*.rs"))
    sources += [MANIFEST, SOURCES / "Cargo.lock", SOURCES / "pyproject.toml"]
    stamp, value = environment / ".native", digest(sources)
    if is_current(stamp, value):
        return
    if shutil.which("cargo") is None:
        sys.exit("the native edge needs cargo, the build tool of Rust, which is not installed")
    install(environment, "native")
    shutil.rmtree(WHEELS, ignore_errors=True)
    command = [str(environment / "bin" / "maturin"), "build", "--release", "--locked", "--quiet"]
    command += ["--manifest-path", str(MANIFEST), "--out", str(WHEELS)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("the native edge was not built")
    wheels = [str(wheel) for wheel in WHEELS.glob("*.whl")]
    install_with(environment, "--no-deps", "--force-reinstall", *wheels)
    stamp.write_text(value)


def main() -> None:
    """Build into the environment that the argument names, or only download the crates."""
    if sys.argv[1] != "--crates":
        build(Path(sys.argv[1]))
    elif reason := download_crates():
        sys.exit(f"WARNING: the native edge is neither checked nor built: {reason}")


if __name__ == "__main__":
    main()
