"""Run the pods of a namespace as processes: the work of scheduler, kubelet and network.

Each start of a pod gets a network namespace with a new address. The process has the environment
of the rendered manifest and its volume at the mount path. The readiness probe is the one of the
manifest, more often.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path

from tests.k8s.control_plane.config_volumes import ROOT, ConfigVolumes

BRIDGE = "br-pods"
PREFIX = "10.77"
HERE = f"{PREFIX}.0.1"
"""Address of this machine on the bridge; the DNS server listens here."""
TURN_SECONDS = 0.2
PROBE_SECONDS = 2.0
FAILURES_MAX = 3
"""Failed probes in a row after which a ready pod is not ready, as in the manifest."""
PROGRAMS = str(Path(sys.executable).parent)
MOUNT = (
    "mount -t tmpfs tmpfs /var/lib && mkdir /var/lib/taskraft"
    ' && mount --bind "$1" /var/lib/taskraft'
    ' && mount -t overlay overlay -o "lowerdir=$2:/etc" /etc'
    f' && mount --bind "$3" {ROOT} && shift 3 && exec "$@"'
)
RESTART_SECONDS = 2.0
"""Time from the start of a process that exits until its next start; the kubelet waits longer."""


def ip(*words):
    subprocess.run(("ip", *words), check=True, capture_output=True, text=True)


def set_up_bridge():
    """Create the bridge of all pods, with the address of this machine."""
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{HERE}/16", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")


def expanded(text, known):
    """Return a value with its references to earlier variables replaced."""
    return re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), text)


def is_ready(manifest):
    """Return whether the API server shows a pod as ready."""
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in manifest["status"].get("conditions", ())
    )


class PodProcess:
    """The container of one pod, in a network of its own."""

    def __init__(self, name, uid, number, volumes, environment, log):
        self.name, self.uid = name, uid
        self.address = f"{PREFIX}.{1 + number // 250}.{2 + number % 250}"
        self._network, self._port = f"pod-{number}", f"port-{number}"
        ip("netns", "add", self._network)
        pair = ("type", "veth", "peer", "name", "eth0", "netns", self._network)
        ip("link", "add", self._port, *pair)
        ip("link", "set", self._port, "master", BRIDGE, "up")
        ip("-n", self._network, "address", "add", f"{self.address}/16", "dev", "eth0")
        ip("-n", self._network, "link", "set", "eth0", "up")
        ip("-n", self._network, "link", "set", "lo", "up")
        self._command = (
            *("ip", "netns", "exec", self._network, "unshare", "-m", "sh", "-c", MOUNT, "sh"),
            *(*map(str, volumes), shutil.which("taskraft", path=PROGRAMS), "serve"),
        )
        self._environment, self._log = environment, log
        self.restarts = -1
        self.answered_at = None
        """When a probe of the running process was first answered."""
        self.stop_at = self.kill_at = None
        self.start()

    def start(self):
        """Start the process, again if it has exited."""
        self.restarts += 1
        self._failures = 0
        self.started_at = time.monotonic()
        self.answered_at = None
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )

    def passes_readiness(self, *, was_ready):
        """Return whether the pod counts as ready: it does until three probes in a row fail."""
        self._failures = 0 if self.answers("/readyz") else self._failures + 1
        return self._failures < (FAILURES_MAX if was_ready else 1)

    def answers(self, page):
        """Return whether a probe succeeds."""
        return self.page(page)[0] == 200

    def page(self, page):
        """Return status and text of a page; status 0: no answer."""
        url = f"http://{self.address}:7480{page}"
        try:
            with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def close(self):
        """Kill the process and remove the network."""
        self.process.kill()
        self.process.wait()
        ip("link", "delete", self._port)
        ip("netns", "delete", self._network)


class Kubelet(threading.Thread):
    """Runs the pods of a namespace until ``close``.

    Args:
        api: the API server.
        namespace: the namespace.
        folder: receives volumes and logs.
        names: the DNS server.
        hosts: names of the emulated machines; a pod runs on a machine that is not cordoned.
    """

    def __init__(self, api, namespace, folder, names, hosts):
        super().__init__(daemon=True)
        self._api, self._namespace, self._names, self._hosts = api, namespace, names, hosts
        self._folder = folder
        self.config = ConfigVolumes(api, namespace, folder)
        self.pods = {}
        self.before_start = {}
        """What to do once before the next start of a pod, by its name."""
        self.ready_counts = []
        """Number of ready pods in each turn."""
        self.followed_seconds = []
        """Name of each started pod, and the time from its first answer until it is ready."""
        self._numbers = count()
        self._ended = threading.Event()
        self.failure = None
        for host in hosts:
            api.call("POST", "/api/v1/nodes", {"metadata": {"name": host}})

    def run(self):
        try:
            while not self._ended.wait(TURN_SECONDS):
                self._turn()
        except Exception as error:
            self.failure = error
            raise

    def close(self):
        """Stop all pods."""
        self._ended.set()
        self.join()
        for pod in self.pods.values():
            pod.close()

    def volume(self, name):
        """Return the folder of the volume of a pod."""
        return self._folder / f"data-{name}"

    def lose_volume(self, name):
        """Let the next start of a pod find an empty volume; ``return_volume`` undoes that."""
        volume = self.volume(name)
        self.before_start[name] = lambda: volume.rename(self._kept(name))

    def return_volume(self, name):
        """Let the next start of a pod find the volume that was lost before."""

        def return_it():
            shutil.rmtree(self.volume(name))
            self._kept(name).rename(self.volume(name))

        self.before_start[name] = return_it

    def _kept(self, name):
        return self._folder / f"kept-{name}"

    def log(self, name):
        """Return the file with the output of a pod, across restarts."""
        return self._folder / f"{name}.log"

    @property
    def _path(self):
        return f"/api/v1/namespaces/{self._namespace}"

    def _turn(self):
        listed = self._api.call("GET", f"{self._path}/pods")["items"]
        self.ready_counts.append(sum(map(is_ready, listed)))
        for manifest in listed:
            name, uid = manifest["metadata"]["name"], manifest["metadata"]["uid"]
            known = self.pods.get(name)
            if "deletionTimestamp" in manifest["metadata"]:
                self._end(manifest, known)
            elif known is None:
                self._begin(manifest)
            else:
                assert known.uid == uid, f"{name} was replaced before it ended"
                self._probe(manifest, known)

    def _begin(self, manifest):
        """Bind a pod to a machine, and start it once its volume exists."""
        name = manifest["metadata"]["name"]
        if "nodeName" not in manifest["spec"]:
            machines = self._api.call("GET", "/api/v1/nodes")["items"]
            free = [
                machine["metadata"]["name"]
                for machine in machines
                if not machine["spec"].get("unschedulable")
            ]
            target = {"apiVersion": "v1", "kind": "Node", "name": free[hash(name) % len(free)]}
            self._api.call(
                "POST",
                f"{self._path}/pods/{name}/binding",
                {"metadata": {"name": name}, "target": target},
            )
            return
        claims = [
            each["persistentVolumeClaim"]["claimName"]
            for each in manifest["spec"]["volumes"]
            if "persistentVolumeClaim" in each
        ]
        if not all(
            self._api.found(f"{self._path}/persistentvolumeclaims/{claim}") for claim in claims
        ):
            return
        self.before_start.pop(name, lambda: None)()
        volume = self.volume(name)
        volume.mkdir(parents=True, exist_ok=True)
        self.config.refresh(manifest)
        environment = self._environment_of(manifest)
        pod = PodProcess(
            name,
            manifest["metadata"]["uid"],
            next(self._numbers),
            (volume, self.config.layer(), self.config.folder(name)),
            environment,
            self.log(name),
        )
        self.pods[name] = pod
        self._names.addresses[f"{name}.taskraft-peers.{self._namespace}.svc"] = pod.address
        self._report(manifest, pod, answers=False)

    def _environment_of(self, manifest):
        """Return the variables of the container, as the kubelet computes them."""
        (container,) = manifest["spec"]["containers"]
        metadata = manifest["metadata"]
        found = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": "/tmp"}
        for source in container["envFrom"]:
            name = source["configMapRef"]["name"]
            found |= self._api.call("GET", f"{self._path}/configmaps/{name}")["data"]
        for entry in container["env"]:
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                field = source["fieldRef"]["fieldPath"].removeprefix("metadata.")
                found[entry["name"]] = metadata[field]
            elif "configMapKeyRef" in source:
                wanted = source["configMapKeyRef"]
                held = self._api.found(f"{self._path}/configmaps/{wanted['name']}")
                if held is not None:
                    found[entry["name"]] = held["data"][wanted["key"]]
            else:
                found[entry["name"]] = expanded(entry["value"], found)
        return found

    def _probe(self, manifest, pod):
        """Refresh the files, restart an exited process, and report whether the pod is ready."""
        self.config.refresh(manifest)
        is_due = time.monotonic() > pod.started_at + RESTART_SECONDS
        if pod.process.poll() is not None and is_due:
            pod.start()
        if pod.answered_at is None and pod.answers("/livez"):
            pod.answered_at = time.monotonic()
        answers = pod.passes_readiness(was_ready=is_ready(manifest))
        if answers != is_ready(manifest):
            if answers and pod.answered_at is not None:
                self.followed_seconds.append((pod.name, time.monotonic() - pod.answered_at))
            self._report(manifest, pod, answers=answers)

    def _report(self, manifest, pod, *, answers):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        said = "True" if answers else "False"
        conditions = [
            {"type": kind, "status": said if kind.endswith("Ready") else "True",
             "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]  # fmt: skip
        container = {
            "name": manifest["spec"]["containers"][0]["name"],
            "image": manifest["spec"]["containers"][0]["image"],
            "imageID": "",
            "ready": answers,
            "restartCount": pod.restarts,
            "state": {"running": {"startedAt": now}},
        }
        status = {
            "phase": "Running",
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [container],
        }
        try:
            self._api.call(
                "PATCH",
                f"{self._path}/pods/{pod.name}/status",
                {"metadata": {"uid": pod.uid}, "status": status},
                "application/merge-patch+json",
            )
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409}:  # deleted since the list was read
                raise

    def _end(self, manifest, pod):
        """Stop a pod: the pause of its preStop hook, SIGTERM, then SIGKILL after the grace."""
        metadata = manifest["metadata"]
        if pod is not None and pod.uid == metadata["uid"]:
            now = time.monotonic()
            if pod.stop_at is None:
                hook = manifest["spec"]["containers"][0]["lifecycle"]["preStop"]
                pod.stop_at = now + hook["sleep"]["seconds"]
                pod.kill_at = now + metadata["deletionGracePeriodSeconds"]
                return
            if now >= pod.stop_at and pod.stop_at:
                pod.process.send_signal(signal.SIGTERM)
                pod.stop_at = 0
            if pod.process.poll() is None and now < pod.kill_at:
                return
            pod.close()
            del self.pods[pod.name]
            self._names.addresses.pop(f"{pod.name}.taskraft-peers.{self._namespace}.svc", None)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._api.call("DELETE", f"{self._path}/pods/{metadata['name']}", options)
