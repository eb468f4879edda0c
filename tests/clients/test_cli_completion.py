"""The completion scripts, run by the shells themselves: names come from the cluster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

RUNS = {
    "bash": (
        ("bash", "--norc"),
        """source $script
COMP_WORDS=(taskraft tube show em) COMP_CWORD=3
_taskraft_completion taskraft em show
printf '%s\\n' "${COMPREPLY[@]}" """,
    ),
    # Outside of a completion, zsh has no `compadd`; this one prints the array that it gets.
    "zsh": (
        ("zsh", "-f"),
        """autoload -Uz compinit && compinit -u -D
source $script
test "$_comps[taskraft]" = _taskraft_completion || exit 1
compadd() { print -l -- ${(P)argv[-1]}; }
words=(taskraft tube show em) CURRENT=4
_taskraft_completion""",
    ),
    "fish": (("fish", "--no-config"), "source $script; complete -C 'taskraft tube show em'"),
}


@pytest.fixture(params=RUNS)
def shell(request):
    if shutil.which(request.param) is None:
        pytest.skip(f"not installed: {request.param}")
    return request.param


def test_a_shell_completes_the_names_of_tubes(
    cluster, blocking_client, run_remote, tmp_path, shell
):
    blocking_client.create_tube("orders")
    script = tmp_path / "completion"
    script.write_text(run_remote(f"completion {shell}").stdout)
    command, text = RUNS[shell]
    done = subprocess.run(
        [*command, "-c", text],
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TASKRAFT_TARGET": cluster.target,
            "script": str(script),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["emails"]
