"""The local cluster: control plane, one or two nodes, DNS, volumes and registry, in network namespaces with no way out.

`up` is idempotent: a running cluster is kept, a half-started one repaired, a dead or broken one replaced. `down`
removes processes, mounts, links, routes and control groups, also after a crash; only caches stay.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev import cgroups, image_store, mounts, network, packages
from whetstone_dev.commands import DevError, run
from whetstone_dev.controlplane import ControlPlane, Site
from whetstone_dev.gobuild import COREDNS, LOCAL_PATH, build, build_all
from whetstone_dev.network import Ranges
from whetstone_dev.node import (
    HELPER_IMAGE,
    MAXIMUM,
    PROCESSES,
    Node,
    erase,
    node_folder,
    node_name,
    process_name,
    shims,
)
from whetstone_dev.places import BUILD, cache_folder, state_folder
from whetstone_dev.progress import say, stage

DEFAULT = "whetstone"
LAYOUT = 1
"""Number of the state folder's layout; raise it when code of the old number could not run or remove such a cluster."""
STORAGE_CLASS = "whetstone-rwx"
REGISTRY_PORT = 5000
_CORE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_ADDONS = ("coredns", "local-path-provisioner", "docker-registry")


@dataclass(frozen=True)
class Cluster:
    """A cluster by name. The default one is what `make cluster` starts; tests start others beside it."""

    name: str = DEFAULT

    @property
    def folder(self) -> Path:
        """All that the running cluster owns."""
        return state_folder(self.name)

    @property
    def ranges(self) -> Ranges:
        """The recorded address block.

        Raises:
            DevError: there is no such cluster, or code of another layout made it.
        """
        if not self.folder.exists():
            raise DevError(f"there is no cluster {self.name}; `make cluster` starts the default one")
        if (found := self._layout()) != LAYOUT:
            raise DevError(f"cluster {self.name} has layout {found}, not {LAYOUT}: `cluster up` replaces it")
        return Ranges(str(self._site()["block"]))

    @property
    def size(self) -> int:
        """How many nodes it has, or has had when it was last started; 1 before its first start."""
        return int(str(self._site().get("nodes", 1)))

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""
        ranges = self.ranges
        site = Site(
            address=ranges.node(),
            bind="0.0.0.0",  # inside the namespace, which only this machine can reach
            secure_port=6443,
            etcd_port=2379,
            etcd_peer_port=2380,
            services=ranges.services,
            api_service=ranges.api_service,
            namespace=self.name,
        )
        return ControlPlane(self.folder, site=site)

    def node(self, index: int = 0) -> Node:
        """Node `index`; 0 is the first."""
        return Node(cluster=self.name, index=index, ranges=self.ranges, plane=self.plane)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig in this checkout; only the default cluster's has the plain name."""
        return BUILD / ("kubeconfig" if self.name == DEFAULT else f"kubeconfig-{self.name}")

    @property
    def registry(self) -> str:
        """`host:port` of the registry, as the host reaches it."""
        return f"{self.ranges.node()}:{REGISTRY_PORT}"

    def kubectl(self, *arguments: str, feed: str | None = None, timeout: float | None = 60) -> str:
        """Run kubectl as the administrator and return what it prints."""
        command: list[str | Path] = [self.plane.kubectl, f"--kubeconfig={self.plane.kubeconfig}", *arguments]
        return run(command, feed=feed, timeout=timeout)

    def running(self) -> dict[str, bool]:
        """Which of the cluster's processes run."""
        processes = ControlPlane(self.folder).processes
        nodes = [process_name(name, index) for index in range(self.size) for name in PROCESSES]
        return {name: processes.alive(name) for name in (*_CORE, *nodes, *_ADDONS)}

    def readiness(self) -> dict[str, str]:
        """`Ready` or `NotReady` by node; empty when no API server answers."""
        if not self.folder.exists() or not self.plane.ready():
            return {}
        path = "jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=='Ready')].status}{'\\n'}{end}"
        lines = [line.split() for line in self.kubectl("get", "nodes", "--output", path).splitlines()]
        return {name: "Ready" if status == ["True"] else "NotReady" for name, *status in lines}

    def up(self, nodes: int | None = None) -> None:
        """Start the cluster, or what of it does not run, and wait until its nodes are ready.

        Args:
            nodes: How many nodes it shall have; None keeps what it has. A second one that is not wanted any more is
                removed with its pods.
        """
        if os.geteuid() != 0:
            raise DevError("not root: the local cluster makes network namespaces and mounts; run make as root")
        packages.install(packages.NODE)
        build_all()
        with self._lock():
            self._replace_if_unusable()
            with stage(f"Starting cluster {self.name}", expected="10 seconds"):
                wanted = nodes or self.size
                try:
                    self._start(wanted)
                except DevError as error:
                    say(f"{error}\n[whetstone] the cluster could not be repaired: replacing it")
                    self._remove()
                    self._start(wanted)
            self._write_kubeconfig()
        names = " and ".join(node_name(self.name, index) for index in range(self.size))
        say(f"{names} {'are' if self.size > 1 else 'is'} ready; export KUBECONFIG={self.kubeconfig}")

    def down(self) -> None:
        """Stop everything and remove all that the cluster made, but for caches."""
        with self._lock():
            if self.folder.exists() or any(network.exists(name) for name in self._node_names()):
                with stage(f"Stopping cluster {self.name}"):
                    self._remove()
            self.kubeconfig.unlink(missing_ok=True)

    def leftovers(self) -> list[str]:
        """What is still there of a cluster that was taken down; empty when `down` did its work."""
        found = [f"process {name}" for name, alive in self.running().items() if alive] if self.folder.exists() else []
        for index, name in enumerate(self._node_names()):
            if network.exists(name):
                found.append(f"network namespace {name}")
            if network.present(link := network.link_name(self.name, index)):
                found.append(f"link {link}")
            if cgroups.present(name):
                found.append(f"control group {name}")
            if index and image_store.of(name).exists():
                found.append(f"image store {image_store.of(name)}")
            found += [f"containerd-shim {pid}" for pid in shims(node_folder(self.folder, index))]
        found += [f"mount {point}" for point in mounts.under(self.folder)]
        if self.folder.exists():
            found.append(f"folder {self.folder}")
        return found

    def forget_images(self) -> None:
        """Delete what the nodes have pulled; the cluster must be down."""
        for name in self._node_names():
            image_store.forget(name)

    def _node_names(self) -> list[str]:
        """The names of all nodes that there may be."""
        return [node_name(self.name, index) for index in range(MAXIMUM)]

    def _site(self) -> dict[str, object]:
        """What is recorded of the cluster; empty where there is no record that can be read."""
        try:
            site = json.loads((self.folder / "site.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return site if isinstance(site, dict) else {}

    def _record(self, **site: object) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "site.new"
        temporary.write_text(json.dumps({"layout": LAYOUT, **self._site(), **site}))
        temporary.replace(self.folder / "site.json")

    def _layout(self) -> object:
        """The recorded layout; None where there is no record that can be read. The first records had no number."""
        site = self._site()
        return site.get("layout", 1) if site else None

    def _replace_if_unusable(self) -> None:
        """A cluster of which nothing runs is not resumed: its pods would come back confused."""
        if not self.folder.exists() and not any(network.exists(name) for name in self._node_names()):
            return
        if (found := self._layout()) != LAYOUT:
            say(f"another version of this project made cluster {self.name} (layout {found or 'unknown'}, not {LAYOUT})")
            say("replacing it with all that runs on it")
        elif not any(self.running().values()):
            say("found what a stopped or crashed cluster left behind: removing it")
        else:
            return
        self._remove()

    def _start(self, nodes: int) -> None:
        self._start_networks(nodes)
        plane = self.plane
        self._start_registry()
        plane.start(scheduler=True)
        if nodes < MAXIMUM:
            self._remove_second()
        elif not image_store.of(node_name(self.name, 1)).exists():
            self._copy_images()
        for index in range(nodes):
            self.node(index).start(registry=self.registry)
        self._start_addons()
        self._wait_nodes(nodes)

    def _start_networks(self, nodes: int) -> None:
        with network.choosing():
            if "block" not in self._site():
                self._record(block=network.free_block(network.used_networks()))
            self._record(nodes=nodes)
            names = self._node_names()[:nodes]
            for index, name in enumerate(names):
                link = network.link_name(self.name, index)
                network.create(name, link=link, ranges=self.ranges, index=index)
            if nodes > 1:
                network.connect(names[0], names[1], ranges=self.ranges)

    def _copy_images(self) -> None:
        """Give the second node the images that the first has, before it pulls them again."""
        source = self.node(0).image_store
        if image_store.complete(source):
            # Containers run on without their daemon; it is started again with the first node, also after a crash here.
            self.plane.processes.stop("containerd", grace=10)
            image_store.copy(source, self.node(1).image_store)

    def _remove_second(self) -> None:
        node = self.node(1)
        if not (node.folder.exists() or network.exists(node.name) or node.image_store.exists()):
            return
        say(f"removing node {node.name}, which is not wanted any more, and the pods on it")
        node.stop()
        force = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
        self.kubectl("delete", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node.name}", *force)
        self.kubectl("delete", "node", node.name, "--ignore-not-found")
        node.remove()

    def _start_registry(self) -> None:
        storage = cache_folder() / "registry"
        storage.mkdir(parents=True, exist_ok=True)
        config = self.folder / "registry.yaml"
        config.write_text(
            json.dumps(
                {
                    "version": 0.1,
                    "log": {"level": "warn"},
                    "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
                    "http": {"addr": self.registry},
                }
            )
        )
        command: list[str | Path] = ["docker-registry", "serve", config]
        self.plane.processes.start("docker-registry", command, namespace=self.name, config=[config])

    def _start_addons(self) -> None:
        plane, folder = self.plane, self.folder
        admin = plane.kubeconfig
        corefile = folder / "Corefile"
        corefile.write_text(
            f".:53 {{\n bind {self.ranges.node()}\n errors\n cache 5\n"
            f" kubernetes cluster.local {{\n  kubeconfig {admin}\n }}\n}}\n"
        )
        plane.processes.start("coredns", [build(COREDNS), "-conf", corefile], namespace=self.name, config=[corefile])
        self._write_provisioner()
        plane.processes.start(
            "local-path-provisioner",
            [
                *(build(LOCAL_PATH), "start", "--kubeconfig", admin, "--config", folder / "provisioner.json"),
                *("--provisioner-name", "whetstone.dev/local", "--namespace", "kube-system"),
                *("--service-account-name", "default", "--helper-image", HELPER_IMAGE),
                *("--helper-pod-file", folder / "helper-pod.yaml"),
            ],
            namespace=self.name,
            config=[folder / "provisioner.json", folder / "helper-pod.yaml"],
        )
        self.kubectl("apply", "--server-side", "--filename=-", feed=json.dumps(_storage_class()))

    def _write_provisioner(self) -> None:
        volumes = self.folder / "volumes"
        volumes.mkdir(exist_ok=True)
        config = {
            "sharedFileSystemPath": str(volumes),
            "setupCommand": "/nodehelper",
            "teardownCommand": "/nodehelper",
        }
        (self.folder / "provisioner.json").write_text(json.dumps(config))
        helper = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "volume"},
            "spec": {
                "containers": [{"name": "helper", "image": HELPER_IMAGE, "imagePullPolicy": "IfNotPresent"}],
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
            },
        }
        (self.folder / "helper-pod.yaml").write_text(json.dumps(helper))

    def _wait_nodes(self, nodes: int) -> None:
        names = self._node_names()[:nodes]

        def ready() -> bool:
            try:
                found = self.readiness()
            except DevError:
                return False
            return all(found.get(name) == "Ready" for name in names)

        kubelets = [process_name("kubelet", index) for index in range(nodes)]
        self.plane.wait_for(ready, processes=kubelets, timeout=120)

    def _write_kubeconfig(self) -> None:
        BUILD.mkdir(exist_ok=True)
        self.kubeconfig.write_text(self.plane.kubeconfig.read_text())
        self.kubeconfig.chmod(0o600)

    def _remove(self) -> None:
        if self._layout() == LAYOUT and "block" in self._site():
            for index in reversed(range(MAXIMUM)):
                self.node(index).stop()
            for name in _ADDONS:
                self.plane.processes.stop(name, grace=5)
            self.plane.stop()
        # Whatever another version or a lost record started is in a control group or a network namespace of a node.
        for index in reversed(range(MAXIMUM)):
            erase(self.name, index)
        mounts.remove(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        if left := self.leftovers():
            raise DevError(f"cluster {self.name} left behind: {', '.join(left)}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Only one program at a time may start or stop the cluster."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / f"{self.name}.lock").open("w") as handle:
            deadline = time.monotonic() + 600
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise DevError("another `cluster` command has been at work for 10 minutes") from error
                    time.sleep(0.2)
            yield


def _storage_class() -> dict[str, object]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "whetstone.dev/local",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }
