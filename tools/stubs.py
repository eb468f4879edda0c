"""Generate the Python stubs from the contract, or check that the committed stubs are current.

The program runs in the codegen environment (`make proto`, `make proto-check`). Its generator is the
oldest version that clients may have, because generated code refuses libraries that are older than
the generator.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from grpc_tools import protoc

CONTRACT: Final = Path("proto")
PATTERNS: Final = (
    *("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi"),
    "v1/service_config.json",
)


@dataclass(frozen=True, slots=True)
class StubPackage:
    """Location of the generated stubs of one folder of the contract.

    A generated module imports its siblings by the path under which protoc read them. The stubs of
    the internal contracts live in the server's packages, so protoc reads their files under the
    path ``package`` instead of their path below ``proto/``.
    """

    contract: Path
    """Folder of the ``.proto`` files."""
    package: Path
    """Import path of the stubs, as a relative path."""
    root: Path
    """Folder on Python's import path that holds ``package``."""


STUB_PACKAGES: Final = (
    StubPackage(CONTRACT / "taskraft/v1", Path("taskraft/v1"), Path("clients/python/src")),
    StubPackage(
        CONTRACT / "taskraft/raft/v1",
        Path("taskraft_replication/stubs/raft/v1"),
        Path("replication"),
    ),
    *(
        StubPackage(
            CONTRACT / f"taskraft/{name}/v1",
            Path(f"taskraft_service/stubs/{name}/v1"),
            Path("service"),
        )
        for name in ("log", "forwarding")
    ),
    StubPackage(
        CONTRACT / "externalscaler",
        Path("taskraft_service/stubs/externalscaler"),
        Path("service"),
    ),
)


class GeneratorFailed(Exception):
    """protoc refused the contract and printed the reason."""


def generate(target: Path) -> None:
    """Write the stubs of every contract file below ``target``.

    Raises:
        GeneratorFailed: protoc refused the contract.
    """
    plugins = Path(sys.executable).parent
    sources = sorted(
        str(stubs.package / path.name)
        for stubs in STUB_PACKAGES
        for path in stubs.contract.glob("*.proto")
    )
    arguments = [
        "protoc",
        *(f"-I{stubs.package}={stubs.contract}" for stubs in STUB_PACKAGES),
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


def fresh_stubs(target: Path) -> dict[Path, Path]:
    """Generate below ``target``; return the generated files by their path in the repository."""
    generate(target)
    return {
        stubs.root / path.relative_to(target): path
        for stubs in STUB_PACKAGES
        for path in generated_below(target / stubs.package)
    } | copied_files()


def committed_stubs() -> set[Path]:
    """Return the paths of the stubs in the repository."""
    return {path for root in roots() for path in generated_below(root)}


def copied_files() -> dict[Path, Path]:
    """Return the files of the contract that Python packages contain, by the path of the copy."""
    return {
        stubs.root / stubs.package / path.name: path
        for stubs in STUB_PACKAGES
        for path in stubs.contract.glob("*.json")
    }


def roots() -> set[Path]:
    """Return the folders on Python's import path that hold stubs."""
    return {stubs.root for stubs in STUB_PACKAGES}


def generated_below(folder: Path) -> list[Path]:
    """Return the generated files below ``folder``, sorted."""
    return sorted(path for pattern in PATTERNS for path in folder.rglob(pattern))


def differences(fresh: dict[Path, Path], committed: set[Path]) -> list[str]:
    """Return one line per committed stub that is missing, stale or left over."""
    lines = [f"missing: {name}" for name in fresh.keys() - committed]
    lines += [f"left over: {name}" for name in committed - fresh.keys()]
    lines += [
        f"stale: {name}"
        for name in fresh.keys() & committed
        if not filecmp.cmp(fresh[name], name, shallow=False)
    ]
    return sorted(lines)


def replace(fresh: dict[Path, Path], committed: set[Path]) -> None:
    """Replace the committed stubs by the fresh stubs, and make packages of their folders."""
    for name in committed - fresh.keys():
        name.unlink()
    for name, path in fresh.items():
        name.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, name)
    for stubs in STUB_PACKAGES:
        # The outermost package is not generated.
        for package in (stubs.package, *stubs.package.parents[:-2]):
            marker = stubs.root / package / "__init__.py"
            if not marker.exists() or not marker.read_text():
                dotted = ".".join(package.parts)
                marker.write_text(f'"""Hold the generated stubs of {dotted}."""\n')


def main() -> int:
    """Write the stubs, or with ``--check`` only compare; return the exit status."""
    parser = argparse.ArgumentParser(description="Generate the Python stubs from the contract.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    is_check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh, committed = fresh_stubs(Path(scratch)), committed_stubs()
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
