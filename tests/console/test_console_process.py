"""The process of a console loads few libraries."""

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_console_without_sign_in_does_not_load_its_libraries(console):
    assert console.get("/").status_code == 200
    loaded = Path(f"/proc/{console.process.pid}/maps").read_text()
    assert "grpc" in loaded
    assert not re.findall(r"\S*/(?:cryptography|pydantic_core)/\S*", loaded)
