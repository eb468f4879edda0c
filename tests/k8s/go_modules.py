"""Files of other projects, taken from their Go modules."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

KEDA = "github.com/kedacore/keda/v2@v2.21.0"
CERT_MANAGER = "github.com/cert-manager/cert-manager@v1.21.2"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
DOWNLOAD_SECONDS_MAX = 120


def module_folder(module, empty_folder):
    """Return the folder of a Go module; skip the test if the module cannot be downloaded."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd=empty_folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"the download of {module} takes more than {DOWNLOAD_SECONDS_MAX} s")
    answer = json.loads(done.stdout or "{}")
    if "Dir" not in answer:
        pytest.skip(f"{module} cannot be downloaded: {answer.get('Error', done.stderr)}")
    return Path(answer["Dir"])
