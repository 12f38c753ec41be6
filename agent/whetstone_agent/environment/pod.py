"""Harbor's environment interface over one pod per trial."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable
from typing import Any, ClassVar, Final

from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.options import EnvironmentOptions
from kubernetes.aio.client.exceptions import ApiException
from pydantic import Field

from whetstone_agent.environment import states
from whetstone_agent.environment.cluster import Cluster, Runner, RunnerPod
from whetstone_agent.environment.commands import CommandEnvironment
from whetstone_agent.environment.creation import create_when_quota_allows, delete_pod, ensure_policy
from whetstone_agent.environment.errors import (
    ExecTransportError,
    PodStartError,
    SandboxEvictedError,
    SandboxLostError,
    SandboxOutOfDiskError,
    TransferError,
)
from whetstone_agent.environment.exec import Completed, PodAddress, PodExec
from whetstone_agent.environment.manifest import (
    CONTAINER,
    TMUX,
    TrialPod,
    asked_resources,
    pod_selector,
    proxy_variables,
    trial_pod,
)
from whetstone_agent.environment.network import NetworkLimit, network_limit
from whetstone_agent.environment.shell import PodShell
from whetstone_agent.environment.starting import wait_until_running
from whetstone_agent.environment.watching import PodState, PodWatch

_KILLED: Final = 128 + 9
_AGENTS_SESSION: Final = "__env"
"""How Harbor's name of the sandbox ends in which the agent works."""
_EXPLAIN_SECONDS: Final = 10.0
"""A broken connection is often the first sign of a pod's end; the API server tells the reason a little later."""
_LAST_WORDS_SECONDS: Final = 2.0
"""A command may have ended just before its pod did."""


class PodEnvironmentOptions(EnvironmentOptions):
    """What the runner sets for all trials."""

    benchmark_run: str
    """Name of the BenchmarkRun."""
    deadline_seconds: int = Field(ge=1)
    """Kubernetes ends a trial's pod after that, counted from its start on a node."""
    queue_seconds: float = Field(default=3600, gt=0)
    """How long a pod may wait for room: in the namespace's quota, then on a node."""
    start_seconds: float | None = Field(default=None, gt=0)
    """How long a pod may take from its node to running, image pull included; the task's build timeout when absent."""
    tmux: bool = False
    """Whether the agent needs tmux; an image without gets the runner's."""
    tmux_image: str | None = None
    """Image that holds it; the runner's own when absent."""
    requests: dict[str, str | int] | None = None
    """Instead of what the task asks for."""
    limits: dict[str, str | int] | None = None
    """Instead of what the task asks for."""
    images: dict[str, str] | None = None
    """What to pull instead of the image that a task names, by the folder of the container."""


class PodEnvironment(CommandEnvironment):
    """A trial's sandbox: a pod of the task's image, without a service-account token, owned by the runner's pod."""

    options_model: ClassVar[type[EnvironmentOptions]] = PodEnvironmentOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.options, PodEnvironmentOptions)
        self._settings: PodEnvironmentOptions = self.options
        self._runner = Runner.from_environment()
        self._cluster: Cluster | None = None
        self._watch: PodWatch | None = None
        self._pod: str | None = None
        self._shell: PodShell | None = None

    @staticmethod
    def type() -> str:
        """Return the environment's name in Harbor's records."""
        return "whetstone-pod"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Return which networks a pod can have; it keeps the one it starts with."""
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return which resource settings the pod honours."""
        return EnvironmentResourceCapabilities(
            cpu_limit=True, cpu_request=True, memory_limit=True, memory_request=True, fractional_cpus=True
        )

    def _validate_definition(self) -> None:
        if not self._image():
            raise ValueError(f"task {self.environment_name!r} has no [environment] docker_image")

    @property
    def pod_name(self) -> str | None:
        """Name of the pod, once it was created."""
        return self._pod

    async def start(self, force_build: bool) -> None:  # noqa: ARG002 - images are prebuilt
        """Create the pod, wait until it runs, and put the task's files there.

        Raises:
            TrialsForbiddenError: The API server refuses to create it.
            PodStartError: It did not start in time.
        """
        self._cluster = await Cluster.shared()
        self._watch = self._cluster.watch_pods(
            namespace=self._runner.namespace, selector=pod_selector(self._settings.benchmark_run)
        )
        limit = await network_limit(self.network_policy)
        if limit is not None:
            policy = limit.policy(runner=self._runner, benchmark_run=self._settings.benchmark_run)
            await ensure_policy(self._cluster, policy)
        manifest = trial_pod(self._wanted_pod(await self._cluster.runner_pod(self._runner), limit))
        self._pod = str(manifest["metadata"]["name"])
        await create_when_quota_allows(self._cluster, manifest, limit_seconds=self._settings.queue_seconds)
        address = PodAddress(namespace=self._runner.namespace, pod=self._pod, container=CONTAINER)
        self._shell = PodShell(PodExec(self._cluster, address))
        await wait_until_running(
            self._watch,
            self._pod,
            CONTAINER,
            queue_seconds=self._settings.queue_seconds,
            start_seconds=self._settings.start_seconds or float(self.task_env_config.build_timeout_sec),
            knock=self._shell.knock,
        )
        if manifest["spec"].get("initContainers"):
            await self._link_tmux()
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Delete the pod; with `delete` false it stays until its deadline, or its runner's end."""
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.close()
        if self._cluster is None or self._pod is None:
            return
        if self._watch is not None:
            self._watch.forget(self._pod)
        if not delete:
            return
        try:
            await delete_pod(self._cluster, self._runner.namespace, self._pod)
        except ApiException as error:
            self.logger.warning(f"pod {self._pod} was not deleted: {error.reason}")

    async def _link_tmux(self) -> None:
        """Put tmux where every shell finds it, login shells too, unless the image has its own.

        Raises:
            PodStartError: The image's user may not write there.
        """
        place = "/usr/local/bin"
        linked = await self.exec(
            f"command -v tmux >/dev/null || {{ mkdir -p {place} && ln -sf {TMUX}/bin/tmux {place}/tmux; }} && tmux -V",
            cwd="/",
            user="root",
        )
        if linked.return_code != 0:
            said = f"{linked.stdout or ''} {linked.stderr or ''}".strip()
            raise PodStartError(f"the agent needs tmux, and the task's image neither has nor takes one: {said}")

    def _wanted_pod(self, runner_pod: RunnerPod, limit: NetworkLimit | None) -> TrialPod:
        task = self.task_env_config
        asked = asked_resources(task)
        overridden = self._settings.requests is not None or self._settings.limits is not None
        return TrialPod(
            runner=self._runner,
            benchmark_run=self._settings.benchmark_run,
            session=self.session_id,
            nonce=secrets.token_hex(8),
            image=self._image(),
            deadline_seconds=self._settings.deadline_seconds,
            requests=(self._settings.requests or {}) if overridden else asked,
            limits=(self._settings.limits or {}) if overridden else asked,
            # A limited network has its own ways out, and no proxy is among them.
            env={**(proxy_variables(os.environ) if limit is None else {}), **self._startup_env()},
            network_key=limit.key(self._runner) if limit is not None else None,
            host_aliases=limit.host_aliases() if limit is not None else (),
            pull_secrets=runner_pod.pull_secrets,
            tmux_image=(self._settings.tmux_image or runner_pod.image) if self._settings.tmux else None,
        )

    def _image(self) -> str:
        images = self._options().images or {}
        return images.get(str(self.environment_dir)) or self.task_env_config.docker_image or ""

    def _options(self) -> PodEnvironmentOptions:
        # Harbor validates before our own constructor has stored them.
        assert isinstance(self.options, PodEnvironmentOptions)
        return self.options

    def scripts(self) -> PodShell:
        """Return what runs commands in the pod."""
        if self._shell is None:
            raise SandboxLostError(f"the pod of {self.session_id} is not running")
        return self._shell

    async def checked(self, done: Completed) -> Completed:
        """Tell a command that was killed alone from one that ended with its container: the latter is no answer that an
        agent or a verifier may see."""
        if done.exit_code == _KILLED:
            await self.working(self.scripts().answers(timeout_seconds=_EXPLAIN_SECONDS))
        return done

    async def working[T](self, work: Awaitable[T]) -> T:
        """Work in the pod; where that fails or hangs because the pod ended, say why it ended.

        Raises:
            SandboxLostError: The pod ended; a subclass names the reason.
            ExecTransportError, TransferError: It did not, and the work failed.
        """
        assert self._watch is not None
        assert self._pod is not None
        doing = asyncio.ensure_future(work)
        watching = asyncio.create_task(self._watch.until(self._pod, self._ending))
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await asyncio.wait({doing}, timeout=_LAST_WORDS_SECONDS)
            if doing.done() and not isinstance(doing.exception(), ExecTransportError | TransferError):
                return doing.result()
            if doing.done() and isinstance(doing.exception(), ExecTransportError):
                await asyncio.wait({watching}, timeout=_EXPLAIN_SECONDS)
            if watching.done():
                cause = doing.exception() if doing.done() else None
                raise await self._explained(watching.result()) from cause
            return doing.result()
        finally:
            for task in (doing, watching):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ExecTransportError, TransferError):
                await doing

    async def _explained(self, end: SandboxLostError) -> SandboxLostError:
        """Return the reason of a pod's end: the kubelet writes it after it has written that the container ended."""
        assert self._watch is not None
        if type(end) is not SandboxLostError:
            return end
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXPLAIN_SECONDS):
                last = await self._watch.until(str(self._pod), self._last_ending)
                return last if type(last) is not SandboxLostError else end
        return end

    def _last_ending(self, pod: PodState | None) -> SandboxLostError | None:
        return self._ending(pod) if states.is_over(pod) else None

    def _ending(self, pod: PodState | None) -> SandboxLostError | None:
        end = states.ending(pod, str(self._pod))
        if isinstance(end, SandboxOutOfDiskError) and not self.session_id.endswith(_AGENTS_SESSION):
            # The agent never was in a verifier's pod of its own.
            return SandboxEvictedError(str(end))
        return end
