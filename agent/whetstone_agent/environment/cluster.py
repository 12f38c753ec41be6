"""Connection to the API server: in-cluster credentials, or `KUBECONFIG` outside a pod."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp
from kubernetes.aio import client, config

from whetstone_agent.environment.frames import PROTOCOL
from whetstone_agent.environment.watching import PodWatch

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_POOL_SIZE: Final = 512
"""Connections at a time: each running command holds one."""
_HEARTBEAT_SECONDS: Final = 30.0
_MAX_MESSAGE_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The pod that runs the benchmark; trial pods belong to it."""

    namespace: str
    pod_name: str | None = None
    pod_uid: str | None = None

    @classmethod
    def from_environment(cls) -> "Runner":
        """Read `POD_NAMESPACE`, `POD_NAME` and `POD_UID` (downward API)."""
        namespace = os.environ.get("POD_NAMESPACE")
        if not namespace:
            namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.is_file() else "default"
        return cls(
            namespace=namespace,
            pod_name=os.environ.get("POD_NAME") or None,
            pod_uid=os.environ.get("POD_UID") or None,
        )


@dataclass(frozen=True, kw_only=True)
class RunnerPod:
    """What trial pods take over from the runner's pod."""

    image: str | None = None
    pull_secrets: tuple[str, ...] = ()


class Cluster:
    """One API client with its connection pool. Use `Cluster.shared()`, which makes one per event loop."""

    _shared: "tuple[asyncio.AbstractEventLoop, Cluster] | None" = None

    def __init__(self, api_client: Any) -> None:
        self._api_client = api_client
        self.core: Any = client.CoreV1Api(api_client)
        self.networking: Any = client.NetworkingV1Api(api_client)
        self.policies: set[str] = set()
        """Names of the NetworkPolicies that exist, as far as this process made them."""
        self._runner_pod: RunnerPod | None = None
        self._reading_runner = asyncio.Lock()
        self._watches: dict[tuple[str, str], PodWatch] = {}

    @classmethod
    async def connect(cls) -> "Cluster":
        """Connect by `KUBECONFIG` where that is set, else by the pod's service account."""
        configuration = client.Configuration()
        if os.environ.get("KUBECONFIG"):
            await config.load_kube_config(os.environ["KUBECONFIG"], client_configuration=configuration)
        else:
            config.load_incluster_config(client_configuration=configuration)
        configuration.connection_pool_maxsize = _POOL_SIZE
        return cls(client.ApiClient(configuration))

    @classmethod
    async def shared(cls) -> "Cluster":
        """Return the connection of the running event loop."""
        loop = asyncio.get_running_loop()
        if cls._shared is None or cls._shared[0] is not loop:
            cls._shared = (loop, await cls.connect())
        return cls._shared[1]

    @classmethod
    async def close_shared(cls) -> None:
        """Close the running event loop's connection, if there is one."""
        if cls._shared is not None and cls._shared[0] is asyncio.get_running_loop():
            shared, cls._shared = cls._shared[1], None
            await shared.close()

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return str(self._api_client.configuration.host)

    async def runner_pod(self, runner: Runner) -> RunnerPod:
        """Return what the runner's own pod says; nothing where the runner is no pod."""
        async with self._reading_runner:
            if self._runner_pod is None:
                self._runner_pod = await self._read_runner(runner)
        return self._runner_pod

    async def _read_runner(self, runner: Runner) -> RunnerPod:
        if not runner.pod_name:
            return RunnerPod()
        spec = (await self.core.read_namespaced_pod(runner.pod_name, runner.namespace)).spec
        return RunnerPod(
            image=spec.containers[0].image,
            pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets or []),
        )

    def watch_pods(self, *, namespace: str, selector: str) -> PodWatch:
        """Return the one watch of the pods that a selector names."""
        watch = self._watches.get((namespace, selector))
        if watch is None:
            watch = self._watches[namespace, selector] = PodWatch(self.core, namespace=namespace, selector=selector)
            watch.begin()
        return watch

    async def close(self) -> None:
        """Close all connections."""
        for watch in self._watches.values():
            await watch.close()
        await self._api_client.close()

    async def open_exec(
        self, *, namespace: str, pod: str, container: str, command: list[str], stdin: bool
    ) -> aiohttp.ClientWebSocketResponse:
        """Start a command in a container.

        Raises:
            aiohttp.ClientError: The server cannot be reached, or refuses (`WSServerHandshakeError`, with its status).
        """
        configuration = self._api_client.configuration
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if stdin else []
        query += [("command", word) for word in command]
        parts = urlsplit(f"{configuration.host}/api/v1/namespaces/{namespace}/pods/{pod}/exec")
        scheme = "wss" if parts.scheme == "https" else "ws"
        url = urlunsplit((scheme, parts.netloc, parts.path, urlencode(query), ""))
        headers: dict[str, str] = {}
        for setting in (await configuration.auth_settings()).values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        rest = self._api_client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - as the client's own WsApiClient does
        session: aiohttp.ClientSession = rest.pool_manager
        return await session.ws_connect(
            url,
            headers=headers,
            protocols=(PROTOCOL,),
            heartbeat=_HEARTBEAT_SECONDS,
            max_msg_size=_MAX_MESSAGE_BYTES,
        )
