"""The tool chains of Go and Node.js, and the programs that are built with them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD_TIMEOUT_S = 170


def run(*command: str, folder: Path, timeout_s: int) -> str:
    """Run a program and return what it printed; its stderr is part of the failure's message."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def require(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def generate_go(folder: Path) -> None:
    """Generate the stubs of the contract for the Go module in a folder."""
    require("go")
    shutil.rmtree(folder / "stubs", ignore_errors=True)
    buf = str(Path(sys.executable).parent / "buf")
    contract = str(ROOT / "proto")
    stubs = [buf, "generate", contract, "--path", f"{contract}/taskraft/v1"]
    run(*stubs, "--template", "buf.gen.yaml", folder=folder, timeout_s=BUILD_TIMEOUT_S)


def build_go(folder, package, binary):
    """Build a program; return the command that starts it."""
    run("go", "build", "-o", str(binary), package, folder=folder, timeout_s=BUILD_TIMEOUT_S)
    return [str(binary)]


def install_node(folder: Path) -> None:
    """Install the locked packages of a folder, unless they are installed."""
    require("node", "npm")
    installed = folder / "node_modules" / ".package-lock.json"
    lock = folder / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run("npm", "ci", folder=folder, timeout_s=BUILD_TIMEOUT_S)


@pytest.fixture(scope="session")
def go_stubs():
    folder = HERE / "go"
    generate_go(folder)
    return folder


@pytest.fixture(scope="session")
def node_folder():
    folder = HERE / "node"
    install_node(folder)
    return folder
