"""A real Kueue as a process beside a control plane of a test's own, with its webhooks for Jobs and Workloads."""

import base64
import json
import socket
from pathlib import Path
from typing import Any

import yaml
from integration.api import Api
from support.waiting import eventually
from whetstone_dev.commands import run
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.gobuild import KUEUE, build

GROUP = "kueue.x-k8s.io/v1beta2"
_NAMESPACE = "kueue-system"
_HOST = "kueue-webhook-service.kueue-system.svc"
_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
_PATHS = ("batch-v1-job", "kueue-x-k8s-io-v1beta2-workload", "kueue-x-k8s-io-v1beta2-clusterqueue")


class Kueue:
    """Kueue of one control plane.

    Args:
        plane: The control plane.
        api: Its administrator's client.
        folder: Folder of its own.
    """

    def __init__(self, plane: ControlPlane, api: Api, folder: Path) -> None:
        self._plane, self._api, self._folder = plane, api, folder
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            self._port, self._health = first.getsockname()[1], second.getsockname()[1]

    def start(self) -> None:
        """Install its kinds and webhooks, start it, and wait until it takes queues."""
        program = build(KUEUE)
        self._api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        self._certify()
        for path in sorted((program.parent / "manifests" / "crd" / "bases").glob("*.yaml")):
            self._define(yaml.safe_load(path.read_text()))
        for webhooks in yaml.safe_load_all((program.parent / "manifests" / "webhook" / "manifests.yaml").read_text()):
            self._hook(webhooks)
        settings = self._folder / "kueue.yaml"
        settings.write_text(json.dumps(self._settings()))
        environment = {"KUBECONFIG": str(self._plane.kubeconfig)}
        self._plane.processes.start("kueue", [program, f"--config={settings}"], env=environment)
        eventually(self._takes_queues, what=f"Kueue, whose log is {self._plane.processes.log('kueue')}", seconds=90)

    def stop(self) -> None:
        """End it."""
        self._plane.processes.stop("kueue", grace=5)

    def create(self, kind: str, name: str, spec: dict[str, Any], *, namespace: str = "") -> None:
        """Create an object of Kueue's."""
        scope = f"namespaces/{namespace}/" if namespace else ""
        path = f"/apis/{GROUP}/{scope}{kind.lower()}s".replace("classs", "classes")
        body = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}}
        self._api.raw("POST", path, {**body, **(spec if kind == "WorkloadPriorityClass" else {"spec": spec})})

    def workload(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the Workload of a Job."""
        path = f"/apis/{GROUP}/namespaces/{job['metadata']['namespace']}/workloads"
        found = [one for one in self._api.raw("GET", path)["items"] if _uid(one) == job["metadata"]["uid"]]
        assert found, f"{job['metadata']['name']} has no Workload"
        return dict(found[0])

    def _takes_queues(self) -> bool:
        if not self._plane.processes.alive("kueue"):
            raise RuntimeError(self._plane.processes.tail("kueue"))
        log = self._plane.processes.log("kueue").read_text()
        return '"Starting workers"' in log and "Serving webhook server" in log

    def _settings(self) -> dict[str, Any]:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": _NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": self._port, "host": "127.0.0.1", "certDir": str(self._folder / "certificates")},
            "leaderElection": {"leaderElect": False},
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {"VisibilityOnDemand": False},
        }

    def _certify(self) -> None:
        """Make the certificates that Kueue would make for a Service, for the loopback too."""
        folder = self._folder / "certificates"
        folder.mkdir()
        authority, server = folder / "ca", folder / "tls"
        for key in (authority, server):
            run(["openssl", "genrsa", "-traditional", "-out", key.with_suffix(".key"), "2048"])
        signed = ["openssl", "req", "-x509", "-new", "-days", "3650", "-key", authority.with_suffix(".key")]
        names = ["-addext", "subjectAltName=DNS:kueue-ca", "-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
        run([*signed, "-subj", "/O=kueue/CN=kueue-ca", *names, "-out", authority.with_suffix(".crt")])
        extension = folder / "tls.ext"
        extension.write_text(f"subjectAltName=DNS:{_HOST},IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        request = run(["openssl", "req", "-new", "-key", server.with_suffix(".key"), "-subj", f"/CN={_HOST}"])
        command = ["openssl", "x509", "-req", "-days", "3650", "-CA", authority.with_suffix(".crt"), "-CAcreateserial"]
        command += ["-CAkey", authority.with_suffix(".key"), "-extfile", extension, "-out", server.with_suffix(".crt")]
        run(command, feed=request)
        data = {one.name: _encoded(one) for one in folder.iterdir() if one.suffix in (".key", ".crt")}
        secret = {"metadata": {"name": "kueue-webhook-server-cert"}, "data": data}
        self._api.raw("POST", f"/api/v1/namespaces/{_NAMESPACE}/secrets", secret)

    def _define(self, definition: dict[str, Any]) -> None:
        versions = [one for one in definition["spec"]["versions"] if one["storage"]]
        definition["spec"]["versions"] = versions
        if definition["spec"]["names"]["plural"] in _CONVERTED:
            webhook = {"clientConfig": {"url": self._url("/convert")}, "conversionReviewVersions": ["v1"]}
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        definition["metadata"].pop("creationTimestamp", None)
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self._api.raw("POST", collection, definition)

    def _hook(self, webhooks: dict[str, Any]) -> None:
        kept = [one for one in webhooks["webhooks"] if one["clientConfig"]["service"]["path"].endswith(_PATHS)]
        for one in kept:
            path = one["clientConfig"]["service"]["path"]
            one["clientConfig"] = {"url": self._url(path), "caBundle": _encoded(self._folder / "certificates/ca.crt")}
        collection = f"/apis/admissionregistration.k8s.io/v1/{webhooks['kind'].lower()}s"
        name = f"kueue-{webhooks['metadata']['name']}"
        self._api.raw("POST", collection, {**webhooks, "metadata": {"name": name}, "webhooks": kept})

    def _url(self, path: str) -> str:
        return f"https://127.0.0.1:{self._port}{path}"


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _uid(workload: dict[str, Any]) -> str:
    return str((workload["metadata"].get("labels") or {}).get("kueue.x-k8s.io/job-uid"))
