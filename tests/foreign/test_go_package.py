"""The Go package of the contract can be imported, and a channel to all nodes can be opened."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.foreign.conftest import BUILD_TIMEOUT_S, HERE, ROOT, require, run

PAGE = ROOT / "docs/languages.md"
GO_BLOCK = re.compile(r"```go\n(.*?)```", re.DOTALL)
TEMPLATE_BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
IMPORT_PATH = "taskraft.dev/proto"
PROGRAM = f"""package main

import (
	"fmt"

	pb "{IMPORT_PATH}/taskraft/v1"
)

func main() {{
	connection, err := dialAll([]string{{"127.0.0.1:1", "127.0.0.1:2"}}, `CONFIG`)
	fmt.Println(pb.TaskService_PutTasks_FullMethodName, pb.Task_READY, connection.Target(), err)
}}
"""


@pytest.mark.foreign
def test_a_module_imports_the_contract_by_its_own_path_and_uses_all_nodes(tmp_path):
    require("go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path / name)
    (tmp_path / "buf.gen.yaml").write_text(TEMPLATE_BLOCK.search(PAGE.read_text())[1])
    config = (ROOT / "proto/taskraft/v1/service_config.json").read_text()
    (tmp_path / "main.go").write_text(PROGRAM.replace("CONFIG", config))
    (tmp_path / "nodes.go").write_text(GO_BLOCK.search(PAGE.read_text())[1])
    buf, contract = str(Path(sys.executable).parent / "buf"), str(ROOT / "proto")
    run(
        *(buf, "generate", contract, "--path", f"{contract}/taskraft/v1"),
        folder=tmp_path,
        timeout_s=BUILD_TIMEOUT_S,
    )
    (tmp_path / "contract/go.mod").write_text(f"module {IMPORT_PATH}\n\ngo 1.26.0\n")
    edit = ("-require", f"{IMPORT_PATH}@v0.0.0", "-replace", f"{IMPORT_PATH}=./contract")
    run("go", "mod", "edit", *edit, folder=tmp_path, timeout_s=BUILD_TIMEOUT_S)
    printed = run("go", "run", ".", folder=tmp_path, timeout_s=BUILD_TIMEOUT_S)
    assert printed == "/taskraft.v1.TaskService/PutTasks READY taskraft:///nodes <nil>\n"
