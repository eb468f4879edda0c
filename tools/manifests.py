"""Render the Kubernetes manifests and check them against the schemas, without a cluster.

Kustomize is taken from kubectl, else from the PATH, else built from its Go module. Without all
three the check fails. The schemas come in a wheel (kubernetes-validate).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from os.path import relpath
from pathlib import Path
from typing import Final, TypeAlias

import kubernetes_validate
import yaml

Manifest: TypeAlias = Mapping[str, object]

ROOT: Final = Path(__file__).parent.parent / "k8s"
OVERLAYS: Final = ("base", "overlays/dev", "overlays/prod")
VERSIONS: Final = ("1.30.0", "1.32.0", "1.37.0")
"""Oldest supported release, one in between, and the newest release of the schemas."""

CUSTOM_KINDS: Final = (
    "ServiceMonitor",
    "PrometheusRule",
    "Issuer",
    "Certificate",
    "ScaledObject",
)
"""Kinds of the Prometheus operator, cert-manager and KEDA.

They have no schema here; tests/k8s checks their fields.
"""

KUSTOMIZE_MODULE: Final = "sigs.k8s.io/kustomize/kustomize/v5"
KUSTOMIZE_VERSION: Final = "v5.5.0"
KUBECTL_KUSTOMIZE_MAJOR: Final = 5
"""Minimum Kustomize version in kubectl; older versions lack components and labels without
selectors."""


class KustomizeMissing(Exception):
    """No renderer was found: install kubectl, kustomize or Go."""


def kubectl_is_recent(kubectl: str) -> bool:
    """Return whether this kubectl embeds a Kustomize that supports the manifests."""
    command = [kubectl, "version", "--client"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Kustomize Version: v(\d+)", answer)
    return found is not None and int(found.group(1)) >= KUBECTL_KUSTOMIZE_MAJOR


def find_kustomize() -> list[str]:
    """Return the command that renders a folder; build it if it is missing.

    Raises:
        KustomizeMissing: kubectl, kustomize and Go are all missing.
    """
    kubectl = shutil.which("kubectl")
    if kubectl and kubectl_is_recent(kubectl):
        return [kubectl, "kustomize"]
    binaries = Path(sys.prefix) / "bin"
    kustomize = shutil.which("kustomize") or shutil.which("kustomize", path=str(binaries))
    if kustomize:
        return [kustomize, "build"]
    go = shutil.which("go")
    if go is None:
        raise KustomizeMissing(
            "kubectl 1.27 or later, kustomize and Go are all missing; install one of them"
        )
    print(f"building kustomize {KUSTOMIZE_VERSION} into {binaries}", flush=True)
    module = f"{KUSTOMIZE_MODULE}@{KUSTOMIZE_VERSION}"
    command = ["env", f"GOBIN={binaries}", go, "install", module]
    subprocess.run(command, check=True)
    return [str(binaries / "kustomize"), "build"]


def render_overlay(folder: Path, kustomization: str) -> list[Manifest]:
    """Return the manifests of an overlay in a new folder; ``{root}`` in the text is `ROOT`."""
    text = kustomization.format(root=relpath(ROOT, folder))
    (folder / "kustomization.yaml").write_text(text)
    return render(str(folder))


def render(folder: str) -> list[Manifest]:
    """Return the manifests of a base or overlay; ``folder`` is relative to ``k8s/``."""
    command = [*find_kustomize(), str(ROOT / folder)]
    rendered = subprocess.run(command, capture_output=True, text=True, check=False)
    if rendered.returncode != 0:
        raise ValueError(f"{folder}: {rendered.stderr.strip()}")
    return [manifest for manifest in yaml.safe_load_all(rendered.stdout) if manifest]


def faults(manifest: Manifest) -> list[str]:
    """Return the schema errors of one manifest, for all versions of Kubernetes."""
    if manifest["kind"] in CUSTOM_KINDS:
        return []
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"Kubernetes {version}: {error.message} at {list(error.path)}")
    return found


def main() -> int:
    """Render and check all manifests; print the errors and return the exit status."""
    status = 0
    for folder in OVERLAYS:
        manifests = render(folder)
        for manifest in manifests:
            for fault in faults(manifest):
                print(f"k8s/{folder}: {manifest['kind']}: {fault}", file=sys.stderr)
                status = 1
        print(f"k8s/{folder}: {len(manifests)} manifests, Kubernetes {', '.join(VERSIONS)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
