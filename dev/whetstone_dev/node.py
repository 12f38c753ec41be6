"""One node: containerd, kubelet and kube-proxy in the node's network namespace.

Everything that changes while it runs lies under one state folder; only the images that the first node pulled outlive
it, in the cache.
"""

import hashlib
import io
import json
import shutil
import socket
import tarfile
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev import cgroups, image_store, mounts, network, versions
from whetstone_dev.commands import run, succeeds
from whetstone_dev.controlplane import ControlPlane
from whetstone_dev.gobuild import CONTAINERD, CONTAINERD_SHIM, CTR, NODE_HELPER, build
from whetstone_dev.network import Ranges
from whetstone_dev.pki import Pki
from whetstone_dev.processes import Processes, end

KUBELET_PORT = 10250
REGISTRY_HOST = "registry.whetstone.local:5000"
"""The registry's name in image references; containerd maps it to the registry's address."""
HELPER_IMAGE = f"localhost/whetstone/nodehelper:{versions.NODE_HELPER}"
PROCESSES = ("containerd", "kubelet", "kube-proxy")
MAXIMUM = 2
"""Nodes of a cluster."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a cluster; `index` 0 is the first, which has the cluster's name and the control plane beside it."""

    cluster: str
    index: int
    ranges: Ranges
    plane: ControlPlane

    @property
    def name(self) -> str:
        """The node's name."""
        return node_name(self.cluster, self.index)

    @property
    def folder(self) -> Path:
        """All that the running node owns."""
        return node_folder(self.plane.folder, self.index)

    @property
    def namespace(self) -> str:
        """The network namespace, which has the node's name."""
        return self.name

    @property
    def cgroup(self) -> str:
        """The control group of all pods."""
        return self.name

    @property
    def socket(self) -> Path:
        """containerd's socket."""
        return _socket(self.folder)

    @property
    def image_store(self) -> Path:
        """containerd's root. The first node's outlives the cluster so that images are pulled once."""
        return image_store.of(self.name)

    @property
    def logs(self) -> Path:
        """The pods' logs. A kubelet deletes logs of pods it does not know, so clusters must not share a folder."""
        return self.folder / "pod-logs"

    @property
    def address(self) -> str:
        """The node's address."""
        return self.ranges.node(self.index)

    @property
    def _pki(self) -> Pki:
        return self.plane.pki

    @property
    def _processes(self) -> Processes:
        return self.plane.processes

    def start(self, *, registry: str) -> None:
        """Start what does not run yet. `registry` is the local registry's `host:port`."""
        cgroups.create(self.cgroup)
        self._write_containerd(registry=registry)
        self._write_network()
        self._write_kubelet()
        self._start_containerd()
        # Once it listens it works: the API server calls a node Ready for most of a minute after its kubelet has ended.
        command = self._kubelet_command()
        self.plane.wait_for(lambda: self._kubelet_listens(command), processes=[self.process("containerd")], timeout=60)
        self._pki.kubeconfig("kube-proxy", subject="/CN=system:kube-proxy", server=self.plane.server)
        self._spawn(
            "kube-proxy",
            [
                self.plane.component("kube-proxy"),
                f"--config={self.folder / 'proxy.yaml'}",
                f"--hostname-override={self.name}",
            ],
            config=self.folder / "proxy.yaml",
        )

    def stop(self) -> None:
        """Stop the kubelet, end every pod, and remove mounts and control groups, whatever state they are in."""
        for name in ("kubelet", "kube-proxy"):
            self._processes.stop(self.process(name), grace=10)
        # A pod's first process ignores SIGTERM by default; nothing in a cluster that goes away needs longer.
        cgroups.delete(self.cgroup, grace=3)
        if self._answers():
            self._purge_containers()
        self._processes.stop(self.process("containerd"), grace=10)
        end(shims(self.folder), grace=2)
        for link in Path("/var/log/containers").glob("*.log"):
            if link.is_symlink() and self.logs in link.readlink().parents:
                link.unlink()
        mounts.remove(self.folder)
        mounts.remove(self.image_store)

    def remove(self) -> None:
        """Stop, and remove all that the node made; the folder last, by which an interrupted removal is found again."""
        self.stop()
        erase(self.cluster, self.index)
        shutil.rmtree(self.folder, ignore_errors=True)

    def process(self, name: str) -> str:
        """The name under which one of the node's processes is recorded."""
        return process_name(name, self.index)

    def _spawn(self, name: str, command: list[str | Path], *, config: Path) -> None:
        self._processes.start(self.process(name), command, namespace=self.namespace, config=[config])

    def _ctr(self, *arguments: str | Path) -> list[str | Path]:
        return [CTR.path, "-a", self.socket, "-n", "k8s.io", *arguments]

    def _kubelet_command(self) -> list[str | Path]:
        kubelet = self._pki.kubeconfig(
            f"kubelet-{self.name}", subject=f"/O=system:nodes/CN=system:node:{self.name}", server=self.plane.server
        )
        return [
            self.plane.component("kubelet"),
            f"--kubeconfig={kubelet}",
            f"--config={self.folder / 'kubelet.yaml'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
        ]

    def _kubelet_listens(self, command: list[str | Path]) -> bool:
        """Start the kubelet, again when it has ended: containerd takes its calls only some time after other calls."""
        self._spawn("kubelet", command, config=self.folder / "kubelet.yaml")
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.address, KUBELET_PORT)) == 0

    def _start_containerd(self) -> None:
        fresh = not self._processes.alive(self.process("containerd"))
        config = self.folder / "containerd.toml"
        self._spawn("containerd", [CONTAINERD.path, "--config", config], config=config)
        self.plane.wait_for(self._answers, processes=[self.process("containerd")], timeout=60)
        if fresh and not self._processes.alive(self.process("kubelet")):
            self._purge_containers()
        if HELPER_IMAGE not in run(self._ctr("images", "list", "-q")).split():
            archive = self.folder / "nodehelper.tar"
            write_program_image(build(NODE_HELPER), name=HELPER_IMAGE, archive=archive)
            run(self._ctr("images", "import", archive))

    def _answers(self) -> bool:
        """Whether containerd is alive and answers: a broken one may be alive behind a socket that is gone."""
        alive = self._processes.alive(self.process("containerd"))
        return alive and succeeds([str(CTR.path), "--connect-timeout", "5s", "-a", str(self.socket), "version"])

    def _purge_containers(self) -> None:
        """Forget the containers of an earlier life; the image store remembers them, the new cluster does not."""
        for container in run(self._ctr("containers", "list", "-q")).split():
            succeeds(self._ctr("tasks", "delete", "--force", container))
            succeeds(self._ctr("containers", "delete", container))

    def _write_containerd(self, *, registry: str) -> None:
        for name in (REGISTRY_HOST, registry):
            hosts = self.folder / "registries" / name / "hosts.toml"
            hosts.parent.mkdir(parents=True, exist_ok=True)
            hosts.write_text(f'[host."http://{registry}"]\n  capabilities = ["pull", "resolve"]\n')
        self.image_store.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        images, runtime = ("io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime")
        # Layers are kept unpacked only, since the registry has them packed: a third of the image store.
        # A sandbox may not lower its out-of-memory score without CAP_SYS_RESOURCE, which some machines lack.
        (self.folder / "containerd.toml").write_text(f"""version = 3
root = "{self.image_store}"
state = "{self.folder / "run" / "containerd"}"
[grpc]
  address = "{self.socket}"
[plugins."{images}"]
  discard_unpacked_layers = true
[plugins."{images}".pinned_images]
  sandbox = "{HELPER_IMAGE}"
[plugins."{images}".registry]
  config_path = "{self.folder / "registries"}"
[plugins."{runtime}"]
  enable_selinux = false
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."{runtime}".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{self.folder / "cni"}"
[plugins."{runtime}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "{CONTAINERD_SHIM.path}"
[plugins."{runtime}".containerd.runtimes.runc.options]
  SystemdCgroup = false
""")

    def _write_network(self) -> None:
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self.ranges.pods(self.index)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self.folder / "ipam"),
            },
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        document = {"cniVersion": "0.4.0", "name": "whetstone", "plugins": [bridge, portmap]}
        path = self.folder / "cni" / "10-whetstone.conflist"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1))
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": self.ranges.block,
            "clientConnection": {"kubeconfig": str(self._pki.folder / "kube-proxy.conf")},
            # These belong to the host's kernel, which is not ours to tune.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        self._write_proxy(json.dumps(proxy, indent=1))

    def _write_proxy(self, text: str) -> None:
        """kube-proxy exits when its file is written, also with the same text, so that a supervisor restarts it."""
        path = self.folder / "proxy.yaml"
        if path.exists() and path.read_text() == text:
            return
        self._processes.stop(self.process("kube-proxy"), grace=10)
        path.write_text(text)

    def _write_kubelet(self) -> None:
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failSwapOn": False,
            "featureGates": {"ImageVolume": True},
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._pki.folder / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.ranges.node(0)],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "evictionHard": {"nodefs.available": "1%", "memory.available": "100Mi", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "maxPods": 250,
            "podLogsDir": str(self.logs),
            "podPidsLimit": 4096,
            "registryPullQPS": 0,
            "serializeImagePulls": False,
            "syncFrequency": "10s",
            "configMapAndSecretChangeDetectionStrategy": "Watch",
        }
        (self.folder / "kubelet.yaml").write_text(json.dumps(document, indent=1))


def erase(cluster: str, index: int) -> None:
    """End what runs in a node's control group and namespace and remove both, whatever program started it.

    The first node's image store stays.
    """
    name = node_name(cluster, index)
    cgroups.delete(name, grace=3)
    end(network.members(name), grace=5)
    network.delete(name, link=network.link_name(cluster, index))
    if index:
        image_store.forget(name)


def node_name(cluster: str, index: int) -> str:
    """The name of a node, of its network namespace and of its control group."""
    return f"{cluster}-{index + 1}" if index else cluster


def node_folder(cluster: Path, index: int) -> Path:
    """The folder of a node; the first node's is the cluster's."""
    return cluster / f"node-{index + 1}" if index else cluster


def process_name(name: str, index: int) -> str:
    """The name under which a node's process is recorded; the first node's have their plain names."""
    return f"{name}-{index + 1}" if index else name


def _socket(folder: Path) -> Path:
    return folder / "run" / "containerd.sock"


def shims(folder: Path) -> list[int]:
    """Ids of the processes that keep the containers of the cluster in `folder`; a killed containerd leaves them.

    They name containerd's socket in their arguments.
    """
    found = []
    socket = str(_socket(folder)).encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"containerd-shim" in command[0] and socket in command:
                found.append(int(entry.name))
    return found


def write_program_image(program: Path, *, name: str, archive: Path) -> None:
    """Write a container image, as a docker archive, that holds one static program as `/nodehelper` and runs it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("nodehelper")
        content = program.read_bytes()
        entry.size, entry.mode = len(content), 0o755
        tar.addfile(entry, io.BytesIO(content))
    layer_bytes = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/nodehelper"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer_bytes).hexdigest()]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, mode="w") as tar:
        for path, content in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", layer_bytes),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
