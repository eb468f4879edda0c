"""The example clients connect without a variable to the node that `taskraft dev` starts."""

from pathlib import Path

import pytest

from taskraft._node_selector import DEFAULT_TARGET

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "client",
    [
        "go/client.go",
        "java/src/main/java/dev/taskraft/example/Client.java",
        "node/src/client.ts",
        "rust/src/client.rs",
    ],
)
def test_an_example_has_the_default_target_of_the_python_client(client):
    source = (EXAMPLES / client).read_text(encoding="utf-8")
    (line,) = [one for one in source.splitlines() if "TASKRAFT_TARGET" in one and '"127.0' in one]
    assert f'"{DEFAULT_TARGET}"' in line
