"""Keep the files of ConfigMaps up to date in running pods, as the kubelet does."""

import shutil
from pathlib import PurePosixPath

ROOT = PurePosixPath("/etc/taskraft")
"""Folder below which the pods mount their ConfigMaps."""


class ConfigVolumes:
    """The volumes of pods whose source is a ConfigMap.

    Args:
        api: the API server.
        namespace: the namespace of the pods.
        folder: receives a folder for each pod, which stands for ``ROOT`` in the pod.
    """

    def __init__(self, api, namespace, folder):
        self._api, self._namespace, self._folder = api, namespace, folder

    def folder(self, pod):
        """Return the folder that stands for ``ROOT`` in a pod."""
        return self._folder / f"config-{pod}"

    def layer(self):
        """Return a folder that adds ``ROOT`` and the current DNS server to the files in /etc."""
        layer = self._folder / "etc"
        (layer / ROOT.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile("/etc/resolv.conf", layer / "resolv.conf")
        return layer

    def refresh(self, manifest):
        """Write the files of all ConfigMaps of a pod; without its ConfigMap, a volume is empty."""
        folder = self.folder(manifest["metadata"]["name"])
        folder.mkdir(exist_ok=True)
        (container,) = manifest["spec"]["containers"]
        places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for volume in manifest["spec"]["volumes"]:
            if "configMap" not in volume:
                continue
            name = volume["configMap"]["name"]
            held = self._api.found(f"/api/v1/namespaces/{self._namespace}/configmaps/{name}")
            files = {} if held is None else held["data"]
            place = folder / PurePosixPath(places[volume["name"]]).relative_to(ROOT)
            place.mkdir(parents=True, exist_ok=True)
            for old in place.iterdir():
                if old.name not in files:
                    old.unlink()
            for file, text in files.items():
                (place / file).write_text(text)
