"""Build etcd, the API server and the controller manager from their Go modules."""

import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
VERSION = "v1.37.2"
"""Release of Kubernetes; go.mod must require it."""
_VERSION_PACKAGE = "k8s.io/component-base/version"
_BUILT = {"server": "etcd"}
"""Names of programs that differ from the last part of their package."""


def build(target):
    """Build the programs into a folder unless they exist; takes 12 minutes of processor time."""
    target.mkdir(parents=True, exist_ok=True)
    if all(
        (target / name).exists() for name in ("etcd", "kube-apiserver", "kube-controller-manager")
    ):
        return
    numbers = VERSION.removeprefix("v").split(".")
    flags = (
        f"-s -w -X {_VERSION_PACKAGE}.gitVersion={VERSION}"
        f" -X {_VERSION_PACKAGE}.gitMajor={numbers[0]} -X {_VERSION_PACKAGE}.gitMinor={numbers[1]}"
    )
    go = shutil.which("go")
    assert go is not None, "Go is not installed"
    command = [go, "build", "-trimpath", "-ldflags", flags, "-o", f"{target}/", "tool"]
    subprocess.run(command, cwd=FOLDER, check=True)
    for built, name in _BUILT.items():
        (target / built).rename(target / name)
