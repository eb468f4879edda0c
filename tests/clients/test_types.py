"""Type checkers find exactly the marked mistakes in uses of the client and of its worker.

A mark has the codes of mypy. basedpyright has other codes, so only its lines
are compared. basedpyright is pyright with a Node in its wheels, so it downloads nothing.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


USES = [HERE / "worker" / "typed_calls.py", HERE / "typed_objects.py"]


def marks(uses):
    """Return line number and code of each marked mistake, in order."""
    found = [
        (number, code)
        for number, line in enumerate(uses.read_text().splitlines(), 1)
        if (mark := re.search(r"# E: ([\w, -]+)$", line))
        for code in mark[1].split(", ")
    ]
    assert found
    return found


@pytest.mark.parametrize("uses", USES, ids=lambda uses: uses.stem)
def test_mypy_reports_exactly_the_marked_mistakes(uses, tmp_path):
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
            "--config-file=", f"--cache-dir={tmp_path}", str(uses),
        ],
        cwd=ROOT,
        env={"MYPYPATH": "clients/python/src", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    error = rf"{uses.name}:(\d+): error: .*\[([\w-]+)\]$"
    found = [(int(line), code) for line, code in re.findall(error, done.stdout, re.MULTILINE)]
    assert found == marks(uses), done.stdout + done.stderr


def test_pyright_reports_exactly_the_marked_lines(tmp_path):
    for uses in USES:
        shutil.copy(uses, tmp_path)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "clients/python/src")]}
    tmp_path.joinpath("pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in json.loads(done.stdout)["generalDiagnostics"]
    }
    assert found == {(uses.name, line) for uses in USES for line, _ in marks(uses)}, done.stdout
