"""Try the pipeline with each minor version of PySpark 4: ``make spark-versions``.

Each version gets a Python environment of its own below ``var/spark-versions``, which has PySpark
and sees all other packages of this environment. A supported version must read a feed in a batch
query and in a streaming query, and export it. Any other version must be refused in one line; one
that pip does not have is left out.

The last line of the output has the result of each version. The exit status is 1 if one failed.
"""

import argparse
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from taskraft_pipeline.doctor import VERSIONS, dotted

MINORS = ((4, 0), (4, 1), (4, 2), (4, 3))
ENVIRONMENTS = Path("var/spark-versions")
INSTALL_SECONDS_MAX = 1_200
RUN_SECONDS_MAX = 300
ABSENT = "not available"


class VersionFailed(Exception):
    """A version of PySpark failed the matrix; the message is one line."""


def is_supported(version: tuple[int, ...]) -> bool:
    """Return whether the pipeline accepts a version of PySpark."""
    least, below = VERSIONS["pyspark"]
    return version >= least and (below is None or version < below)


def refusal(installed: str) -> str:
    """Return the line with which a command refuses a version of PySpark."""
    least, below = VERSIONS["pyspark"]
    assert below is not None
    wanted = f"at least {dotted(least)}, below {dotted(below)}"
    return f"Error: pyspark: {installed}; required: {wanted}"


def run(*command: str | Path, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its status and its output."""
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )


def prepared(minor: tuple[int, ...]) -> Path | None:
    """Return the Python of an environment with a version of PySpark; None if pip has none.

    An environment of an earlier run is used again.
    """
    folder = ENVIRONMENTS / dotted(minor)
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    paths = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", seconds=60)
    # These packages come after the environment's own, so its PySpark is found first. `addsitedir`
    # also reads the path files of the editable packages.
    others = sysconfig.get_path("purelib")
    path_file = Path(paths.stdout.strip()) / "others.pth"
    path_file.write_text(f"import site; site.addsitedir({others!r})\n")
    wanted = f"pyspark=={dotted(minor)}.*"
    done = run(
        python, "-m", "pip", "install", "-q", "--no-deps", wanted, seconds=INSTALL_SECONDS_MAX
    )
    if done.returncode:
        if "No matching distribution" in done.stdout:
            return None
        raise VersionFailed(f"pip: {last_line(done.stdout)}")
    (folder / "ready").touch()
    return python


def last_line(output: str) -> str:
    """Return the last line of an output."""
    return next(reversed(output.strip().splitlines()), "no output")


def tried(python: Path, *, is_accepted: bool) -> str:
    """Run a version of PySpark; return its version and its result as text.

    Raises:
        VersionFailed: the version was not accepted or not refused as ``is_accepted`` says, or
            read a wrong number of events.
    """
    version = run(python, "-c", "import pyspark; print(pyspark.__version__)", seconds=60)
    installed = last_line(version.stdout)
    if is_accepted:
        done = run(python, "-m", "tests.pipeline.spark_smoke", seconds=RUN_SECONDS_MAX)
        if done.returncode:
            raise VersionFailed(f"{installed}: {last_line(done.stdout)}")
        return f"{installed} {last_line(done.stdout)}"
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        command = (python, "-m", "taskraft_pipeline", "export", "--journal", journal)
        done = run(*command, "--target", "127.0.0.1:1", seconds=RUN_SECONDS_MAX)
        if (done.returncode, done.stdout) != (1, f"{refusal(installed)}\n") or journal.exists():
            raise VersionFailed(f"{installed} is not refused: {last_line(done.stdout)}")
    return f"{installed} refused"


def result(minor: tuple[int, ...]) -> tuple[str, bool]:
    """Return the result of a version as text, and whether the version failed."""
    try:
        python = prepared(minor)
        if python is None:
            return f"{dotted(minor)} {ABSENT}", is_supported(minor)
        return tried(python, is_accepted=is_supported(minor)), False
    except (VersionFailed, subprocess.TimeoutExpired) as error:
        return f"FAILED {error}", True


def main() -> int:
    """Try the chosen versions; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [dotted(minor) for minor in MINORS]
    parser.add_argument("only", nargs="*", metavar="VERSION", help=f"default: {' '.join(names)}")
    only = parser.parse_args().only or names
    results = []
    for minor in MINORS:
        if dotted(minor) in only:
            results.append(result(minor))
            print(results[-1][0], flush=True)
    print(", ".join(text for text, _ in results))
    return 1 if any(has_failed for _, has_failed in results) else 0


if __name__ == "__main__":
    sys.exit(main())
