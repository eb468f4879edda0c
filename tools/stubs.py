"""Generate the Python stubs from the contract, or check that the committed ones are up to date.

Run by the codegen environment (`make proto`, `make proto-check`), whose generator is the oldest
that clients may have: generated code refuses libraries older than its generator.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

from grpc_tools import protoc

CONTRACT: Final = Path("proto")
STUBS: Final = Path("clients/python/src")
PATTERNS: Final = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


class GeneratorFailed(Exception):
    """The contract does not compile; protoc has printed why."""


def generate(target: Path) -> None:
    """Write the stubs of every contract file below ``target``.

    Raises:
        GeneratorFailed: protoc refused the contract.
    """
    plugins = Path(sys.executable).parent
    sources = sorted(str(path) for path in CONTRACT.rglob("*.proto"))
    arguments = [
        "protoc",
        f"-I{CONTRACT}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
        f"--mypy_out=quiet:{target}",
        f"--mypy_grpc_out=quiet:{target}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise GeneratorFailed(", ".join(sources))


def stubs_below(root: Path) -> dict[Path, Path]:
    """Return the generated files below ``root`` by their path relative to it."""
    return {
        path.relative_to(root): path for pattern in PATTERNS for path in sorted(root.rglob(pattern))
    }


def differences(fresh: dict[Path, Path], committed: dict[Path, Path]) -> list[str]:
    """Return one line per committed stub that is missing, stale or left over."""
    lines = [f"missing: {STUBS / name}" for name in fresh.keys() - committed.keys()]
    lines += [f"left over: {STUBS / name}" for name in committed.keys() - fresh.keys()]
    lines += [
        f"stale: {STUBS / name}"
        for name in fresh.keys() & committed.keys()
        if not filecmp.cmp(fresh[name], committed[name], shallow=False)
    ]
    return sorted(lines)


def replace(fresh: dict[Path, Path], committed: dict[Path, Path]) -> None:
    """Make the committed stubs equal the fresh ones, and packages of their folders."""
    for name in committed.keys() - fresh.keys():
        committed[name].unlink()
    for name, path in fresh.items():
        target = STUBS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for folder in {name.parent for name in fresh}:
        # The outermost package is the client's own.
        for package in (folder, *folder.parents[:-2]):
            marker = STUBS / package / "__init__.py"
            if not marker.exists() or not marker.read_text():
                dotted = ".".join(package.parts)
                marker.write_text(f'"""Hold the generated stubs of {dotted}."""\n')


def main() -> int:
    """Write the stubs, or with ``--check`` only compare; return the exit status."""
    parser = argparse.ArgumentParser(description="Generate the Python stubs from the contract.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    is_check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = stubs_below(Path(scratch)), stubs_below(STUBS)
        if not is_check:
            replace(fresh, committed)
            return 0
        stale = differences(fresh, committed)
    for line in stale:
        print(line, file=sys.stderr)
    if stale:
        print("run `make proto` and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
