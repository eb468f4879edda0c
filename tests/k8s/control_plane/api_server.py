"""Run etcd, the API server and the controllers of a cluster without a kubelet."""

import json
import os
import secrets
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.turns import blocked_until

CONTROLLERS = (
    *("statefulset-controller", "disruption-controller", "serviceaccount-controller"),
    *("namespace-controller", "garbage-collector-controller", "job-controller"),
    *("cronjob-controller", "endpointslice-controller"),
    "persistentvolumeclaim-protection-controller",
)


class ApiServer:
    """A running API server with its controllers; use as a context manager.

    Args:
        programs: folder of the programs, see ``programs.build``.
        folder: receives data, keys and logs.
        host: address of this machine, which must not be a loopback address.
    """

    def __init__(self, programs, folder, host):
        self._programs, self._folder = programs, folder
        self._token = secrets.token_hex(16)
        self._processes = []
        self._host = host
        self.url = "https://127.0.0.1:6443"

    def __enter__(self):
        self._folder.mkdir()
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (self._folder / "accounts.key").write_bytes(private)
        (self._folder / "tokens.csv").write_text(f'{self._token},root,root,"system:masters"\n')
        self.start("etcd", "--data-dir", str(self._folder / "etcd"))
        self.start(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--cert-dir={self._folder}",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._folder}/accounts.key",
            f"--service-account-signing-key-file={self._folder}/accounts.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",  # so that only Pod Security refuses privileged pods
            "--bind-address=127.0.0.1",
            f"--advertise-address={self._host}",
        )
        self._write_kubeconfig()
        blocked_until(self._is_ready)
        self.start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder}",
        )
        self.kubectl("create", "serviceaccount", "default", "--dry-run=server")
        return self

    def __exit__(self, *_):
        # The data are not needed again. The API server would wait a minute for its own end.
        for process in self._processes:
            process.kill()
            process.wait()

    def start(self, program, *arguments):
        """Start one of the programs."""
        with (self._folder / f"{program}.log").open("wb") as log:
            command = [str(self._programs / program), *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _write_kubeconfig(self):
        self.kubeconfig = self._folder / "kubeconfig"
        here = {"server": self.url, "insecure-skip-tls-verify": True}
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "here", "cluster": here}],
                    "users": [{"name": "root", "user": {"token": self._token}}],
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "root"}}],
                    "current-context": "here",
                }
            )
        )

    def _is_ready(self):
        assert all(each.poll() is None for each in self._processes), self._folder
        try:
            return self.call("GET", "/readyz") == "ok"
        except OSError:
            return False

    def call(self, verb, path, body=None, kind="application/json"):
        """Make one call of the API; return the decoded answer.

        Raises:
            urllib.error.HTTPError: the server refuses the call.
            OSError: the server does not answer.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=verb)
        with urllib.request.urlopen(request, context=_without_check(), timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def found(self, path):
        """Return an object; None if it does not exist."""
        try:
            return self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def kubectl(self, *words, is_checked=True, **options):
        """Run kubectl; return the finished process with its output."""
        done = subprocess.run(
            self.kubectl_command(*words),
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        assert not is_checked or done.returncode == 0, done.stdout + done.stderr
        return done

    @staticmethod
    def kubectl_command(*words):
        """Return the command line of kubectl."""
        return [shutil.which("kubectl"), *words]


def _without_check():
    """Return a TLS context for the server's own self-signed certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
