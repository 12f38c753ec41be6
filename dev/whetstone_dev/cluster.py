"""The local cluster: control plane, node, DNS, volumes and registry, inside a network namespace with no way out.

`up` is idempotent: a running cluster is kept, a half-started one repaired, a dead or broken one replaced. `down`
removes processes, mounts, links, routes and control groups, also after a crash; only caches stay.
"""

import fcntl
import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev import cgroups, mounts, network, packages
from whetstone_dev.commands import DevError, run
from whetstone_dev.controlplane import ControlPlane, Site
from whetstone_dev.gobuild import COREDNS, LOCAL_PATH, build, build_all
from whetstone_dev.network import Ranges
from whetstone_dev.node import HELPER_IMAGE, PROCESSES, Node, shims
from whetstone_dev.places import BUILD, cache_folder, state_folder
from whetstone_dev.processes import end
from whetstone_dev.progress import say, stage

DEFAULT = "whetstone"
LAYOUT = 1
"""Number of the state folder's layout; raise it when code of the old number could not run or remove such a cluster."""
STORAGE_CLASS = "whetstone-rwx"
REGISTRY_PORT = 5000
_CORE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", *PROCESSES)
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
    def link(self) -> str:
        """The host's end of the link to the namespace; the kernel allows 15 characters."""
        return "wh" + hashlib.sha256(self.name.encode()).hexdigest()[:8]

    @property
    def ranges(self) -> Ranges:
        """The recorded address block; chosen and recorded at the first call."""
        record = self.folder / "site.json"
        if not record.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            block = network.free_block(network.used_networks())
            record.write_text(json.dumps({"block": block, "layout": LAYOUT}))
        if (found := self._layout()) != LAYOUT:
            raise DevError(f"cluster {self.name} has layout {found}, not {LAYOUT}: `cluster up` replaces it")
        return Ranges(json.loads(record.read_text())["block"])

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

    @property
    def node(self) -> Node:
        """The first node."""
        return Node(name=self.name, index=0, ranges=self.ranges, plane=self.plane, folder=self.folder)

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
        return {name: processes.alive(name) for name in (*_CORE, *_ADDONS)}

    def up(self) -> None:
        """Start the cluster, or what of it does not run, and wait until its node is ready."""
        packages.install(packages.NODE)
        build_all()
        with self._lock():
            self._replace_if_unusable()
            with stage(f"Starting cluster {self.name}", expected="10 seconds"):
                try:
                    self._start()
                except DevError as error:
                    say(f"{error}\n[whetstone] the cluster could not be repaired: replacing it")
                    self._remove()
                    self._start()
            self._write_kubeconfig()
        say(f"node {self.name} is ready; export KUBECONFIG={self.kubeconfig}")

    def down(self) -> None:
        """Stop everything and remove all that the cluster made, but for caches."""
        with self._lock():
            if self.folder.exists() or network.exists(self.name):
                with stage(f"Stopping cluster {self.name}"):
                    self._remove()
            self.kubeconfig.unlink(missing_ok=True)

    def leftovers(self) -> list[str]:
        """What is still there of a cluster that was taken down; empty when `down` did its work."""
        found = [f"process {name}" for name, alive in self.running().items() if alive] if self.folder.exists() else []
        if network.exists(self.name):
            found.append(f"network namespace {self.name}")
        if Path(f"/sys/class/net/{self.link}").exists():
            found.append(f"link {self.link}")
        if cgroups.present(self.name):
            found.append(f"control group {self.name}")
        found += [f"containerd-shim {pid}" for pid in shims(self.folder)]
        found += [f"mount {point}" for point in mounts.under(self.folder)]
        if self.folder.exists():
            found.append(f"folder {self.folder}")
        return found

    def _layout(self) -> object:
        """The recorded layout; None where there is no record that can be read. The first records had no number."""
        try:
            return json.loads((self.folder / "site.json").read_text()).get("layout", 1)
        except (FileNotFoundError, ValueError, AttributeError):
            return None

    def _replace_if_unusable(self) -> None:
        """A cluster of which nothing runs is not resumed: its pods would come back confused."""
        if not self.folder.exists() and not network.exists(self.name):
            return
        if (found := self._layout()) != LAYOUT:
            say(f"another version of this project made cluster {self.name} (layout {found or 'unknown'}, not {LAYOUT})")
            say("replacing it with all that runs on it")
        elif not any(self.running().values()):
            say("found what a stopped or crashed cluster left behind: removing it")
        else:
            return
        self._remove()

    def _start(self) -> None:
        ranges, plane = self.ranges, self.plane
        network.create(self.name, link=self.link, ranges=ranges)
        self._start_registry()
        plane.start(scheduler=True)
        self.node.start(registry=self.registry)
        self._start_addons()
        self._wait_node()

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
        self.plane.processes.start("docker-registry", ["docker-registry", "serve", config], namespace=self.name)

    def _start_addons(self) -> None:
        plane, folder = self.plane, self.folder
        admin = plane.kubeconfig
        corefile = folder / "Corefile"
        corefile.write_text(
            f".:53 {{\n bind {self.ranges.node()}\n errors\n cache 5\n"
            f" kubernetes cluster.local {{\n  kubeconfig {admin}\n }}\n}}\n"
        )
        plane.processes.start("coredns", [build(COREDNS), "-conf", corefile], namespace=self.name)
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

    def _wait_node(self) -> None:
        def ready() -> bool:
            path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
            try:
                return self.kubectl("get", "node", self.name, "--output", path) == "True"
            except DevError:
                return False

        self.plane.wait_for(ready, processes=["kubelet"], timeout=120)

    def _write_kubeconfig(self) -> None:
        BUILD.mkdir(exist_ok=True)
        self.kubeconfig.write_text(self.plane.kubeconfig.read_text())
        self.kubeconfig.chmod(0o600)

    def _remove(self) -> None:
        known = self._layout() == LAYOUT
        ranges = self.ranges if known else None
        if known:
            self.node.stop()
            for name in _ADDONS:
                self.plane.processes.stop(name, grace=5)
            self.plane.stop()
        # Whatever another version or a lost record started is in the cluster's control group or its network namespace.
        cgroups.delete(self.name, grace=3)
        end(network.members(self.name), grace=5)
        network.delete(self.name, link=self.link, ranges=ranges)
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
