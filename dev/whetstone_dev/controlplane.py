"""etcd, API server and controller manager as processes: the whole cluster's core, or alone for the integration tests.

with ControlPlane(folder) as plane:
    ...                   # plane.kubeconfig is the administrator's
"""

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from whetstone_dev.commands import DevError
from whetstone_dev.gobuild import HYPERKUBE, build
from whetstone_dev.pki import Pki
from whetstone_dev.processes import Processes


@dataclass(frozen=True)
class Site:
    """Where a control plane listens. `namespace` is a network namespace's name; None is the host's own network."""

    address: str
    bind: str
    secure_port: int
    etcd_port: int
    etcd_peer_port: int
    services: str
    api_service: str
    namespace: str | None = None


def loopback_site() -> Site:
    """A site on the host's loopback with ports that are free now."""
    with socket.socket() as first, socket.socket() as second, socket.socket() as third:
        ports = []
        for one in (first, second, third):
            one.bind(("127.0.0.1", 0))
            ports.append(int(one.getsockname()[1]))
    return Site(
        address="127.0.0.1",
        bind="127.0.0.1",
        secure_port=ports[0],
        etcd_port=ports[1],
        etcd_peer_port=ports[2],
        services="10.96.0.0/20",
        api_service="10.96.0.1",
    )


class ControlPlane:
    """A control plane in a folder of its own. Starting a running one does nothing; stopping a stopped one too."""

    def __init__(
        self, folder: Path, *, site: Site | None = None, audited: Sequence[str] = (), admission: Sequence[str] = ()
    ) -> None:
        """Args: `audited`: users whose requests are listed, a line of JSON each, in `audit_log`. `admission`: plugins
        of the API server beside those that are always on."""
        self.folder = folder
        self.audit_log = folder / "audit.log"
        self._audited = list(audited)
        self._admission = ",".join(("NodeRestriction", *admission))
        self.site = site or loopback_site()
        self.pki = Pki(folder / "pki")
        self.processes = Processes(folder / "processes")

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.site.address}:{self.site.secure_port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "pki" / "admin.conf"

    @property
    def kubectl(self) -> Path:
        """A kubectl of the cluster's own version."""
        return self.component("kubectl")

    def component(self, name: str) -> Path:
        """A link to the one program under a component's name, which is how it knows what to be."""
        link = self.folder / "bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        program = build(HYPERKUBE)
        if not link.is_symlink() or link.readlink() != program:
            link.unlink(missing_ok=True)
            link.symlink_to(program)
        return link

    def start(self, *, scheduler: bool = False, controllers: bool = True, timeout: float = 120.0) -> None:
        """Start what does not run yet and wait until the API server is ready.

        Args:
            scheduler: Whether pods are placed.
            controllers: Whether the controller manager works; without it, whoever asks writes what it would.
            timeout: Seconds until the API server must be ready.

        Raises:
            DevError: a process ended, or the API server is not ready after `timeout` seconds.
        """
        self.write_credentials()
        self._start_etcd()
        self._start_api_server()
        self.wait_for(self.ready, processes=("etcd", "kube-apiserver"), timeout=timeout)
        if controllers:
            self._start_controller_manager()
        if scheduler:
            self._spawn(
                "kube-scheduler",
                [f"--kubeconfig={self.pki.folder / 'scheduler.conf'}", "--leader-elect=false", "--secure-port=0"],
            )

    def stop(self) -> None:
        """Stop the API server first: without etcd it would take a minute to end, and etcd last of all."""
        self.processes.stop("kube-apiserver", grace=5)
        for name in ("kube-scheduler", "kube-controller-manager", "etcd"):
            self.processes.stop(name, grace=10)

    def __enter__(self) -> Self:
        """Start it; what has come up by a failure is stopped."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def ready(self) -> bool:
        """Whether the API server answers that it is ready."""
        if not self.kubeconfig.exists():
            return False
        try:
            context = ssl.create_default_context(cafile=str(self.pki.folder / "ca.crt"))
            context.load_cert_chain(self.pki.folder / "admin.crt", self.pki.folder / "admin.key")
            handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
            with urllib.request.build_opener(*handlers).open(f"{self.server}/readyz", timeout=3) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError, ssl.SSLError):
            return False

    def wait_for(self, done: Callable[[], bool], *, processes: Sequence[str], timeout: float) -> None:
        """Wait until `done`; report at once when one of the processes that should bring it about ended.

        Raises:
            DevError: a process ended, or `timeout` seconds passed; the message holds the words of that process, or of
                the last one named.
        """
        deadline = time.monotonic() + timeout
        while not done():
            for name in processes:
                if not self.processes.alive(name):
                    raise DevError(f"{name} ended while starting:\n    {self.processes.tail(name)}")
            if time.monotonic() > deadline:
                name = processes[-1]
                raise DevError(f"{name} is not ready after {timeout:.0f} s:\n    {self.processes.tail(name)}")
            time.sleep(0.1)

    def write_credentials(self) -> None:
        """Make every certificate, key and kubeconfig of the control plane that is not there yet."""
        pki, site = self.pki, self.site
        pki.authority()
        pki.authority("front-proxy-ca")
        pki.service_account_key()
        dns = [f"DNS:{name}" for name in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")]
        addresses = [f"IP:{one}" for one in dict.fromkeys(("127.0.0.1", site.address, site.api_service))]
        pki.leaf("apiserver", subject="/CN=kube-apiserver", names=[*addresses, *dns])
        pki.leaf("apiserver-kubelet", subject="/O=system:masters/CN=kube-apiserver-kubelet-client")
        pki.leaf("front-proxy", subject="/CN=front-proxy-client", issuer="front-proxy-ca")
        for name, subject in (
            ("admin", "/O=system:masters/CN=admin"),
            ("controller-manager", "/CN=system:kube-controller-manager"),
            ("scheduler", "/CN=system:kube-scheduler"),
        ):
            pki.kubeconfig(name, subject=subject, server=self.server)

    def _spawn(self, name: str, arguments: list[str]) -> None:
        self.processes.start(name, [self.component(name), *arguments], namespace=self.site.namespace)

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.site.etcd_port, self.site.etcd_peer_port))
        self._spawn(
            "etcd",
            [
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
        )

    def _start_api_server(self) -> None:
        site, pki = self.site, self.pki.folder
        arguments = [
            f"--etcd-servers=http://127.0.0.1:{site.etcd_port}",
            f"--secure-port={site.secure_port}",
            f"--advertise-address={site.address}",
            f"--bind-address={site.bind}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--cert-dir={pki}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={self._admission}",
            f"--service-cluster-ip-range={site.services}",
            f"--kubelet-client-certificate={pki / 'apiserver-kubelet.crt'}",
            f"--kubelet-client-key={pki / 'apiserver-kubelet.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
            f"--proxy-client-key-file={pki / 'front-proxy.key'}",
        ]
        # The node's containerd has image volumes; without a node the API server is as most are: it drops them.
        if site.namespace is None:
            arguments.append("--endpoint-reconciler-type=none")
        else:
            arguments.append("--feature-gates=ImageVolume=true")
        if self._audited:
            policy = {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata", "users": self._audited}, {"level": "None"}],
            }
            file = self.folder / "audit-policy.json"
            file.write_text(json.dumps(policy))
            arguments += [f"--audit-policy-file={file}", f"--audit-log-path={self.audit_log}"]
            # At 100 MB, which is the default, the log would begin anew while somebody counts in it.
            arguments.append("--audit-log-maxsize=4000")
        self._spawn("kube-apiserver", arguments)

    def _start_controller_manager(self) -> None:
        pki = self.pki.folder
        self._spawn(
            "kube-controller-manager",
            [
                f"--kubeconfig={pki / 'controller-manager.conf'}",
                f"--service-account-private-key-file={pki / 'sa.key'}",
                f"--root-ca-file={pki / 'ca.crt'}",
                f"--cluster-signing-cert-file={pki / 'ca.crt'}",
                f"--cluster-signing-key-file={pki / 'ca.key'}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
                "--node-monitor-grace-period=40s",
            ],
        )
