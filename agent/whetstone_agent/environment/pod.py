"""Harbor's environment interface over one pod per trial."""

import asyncio
import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.options import EnvironmentOptions
from kubernetes.aio.client.exceptions import ApiException
from pydantic import Field

from whetstone_agent.environment import transfer
from whetstone_agent.environment.cluster import Cluster, Runner
from whetstone_agent.environment.errors import (
    ExecTransportError,
    PodStartError,
    SandboxLostError,
    TransferError,
    TrialsForbiddenError,
)
from whetstone_agent.environment.exec import Completed, PodAddress, PodExec
from whetstone_agent.environment.manifest import CONTAINER, TrialPod, pod_selector, trial_pod

_HOPELESS_WAITS: Final = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"})
"""Reasons of a waiting container that no waiting cures."""
_SHARE_OF_BUILD_TIMEOUT: Final = 0.9
"""Harbor's own timeout says nothing of the cause, so ours comes first."""
_FAST_POLLS: Final = 25
_FAST_POLL_SECONDS: Final = 0.2
_SLOW_POLL_SECONDS: Final = 1.0


class PodEnvironmentOptions(EnvironmentOptions):
    """What the runner sets for all trials."""

    benchmark_run: str
    """Name of the BenchmarkRun."""
    deadline_seconds: int = Field(ge=1)
    """Kubernetes ends a trial's pod after that."""
    requests: dict[str, str | int] | None = None
    """Instead of what the task asks for."""
    limits: dict[str, str | int] | None = None
    """Instead of what the task asks for."""


class PodEnvironment(BaseEnvironment):
    """A trial's sandbox: a pod of the task's image, without a service-account token, owned by the runner's pod."""

    options_model: ClassVar[type[EnvironmentOptions]] = PodEnvironmentOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.options, PodEnvironmentOptions)
        self._settings: PodEnvironmentOptions = self.options
        self._runner = Runner.from_environment()
        self._cluster: Cluster | None = None
        self._pod: str | None = None
        self._exec: PodExec | None = None

    @staticmethod
    def type() -> str:
        """Return the environment's name in Harbor's records."""
        return "whetstone-pod"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Return what the environment can do beyond the basics: nothing."""
        return EnvironmentCapabilities()

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return which resource settings the pod honours."""
        return EnvironmentResourceCapabilities(
            cpu_limit=True, cpu_request=True, memory_limit=True, memory_request=True, fractional_cpus=True
        )

    def _validate_definition(self) -> None:
        if not self.task_env_config.docker_image:
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
        manifest = trial_pod(self._wanted_pod())
        await create_pod(self._cluster, manifest)
        self._pod = str(manifest["metadata"]["name"])
        await self._wait_until_running()
        self._exec = PodExec(
            self._cluster, PodAddress(namespace=self._runner.namespace, pod=self._pod, container=CONTAINER)
        )
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Delete the pod; with `delete` false it stays until its deadline, or its runner's end."""
        self._exec = None
        if self._cluster is None or self._pod is None or not delete:
            return
        try:
            await self._cluster.core.delete_namespaced_pod(self._pod, self._runner.namespace, grace_period_seconds=1)
        except ApiException as error:
            if error.status != 404:
                self.logger.warning(f"pod {self._pod} was not deleted: {error.reason}")

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command with bash, or sh where there is none.

        Raises:
            ExecTransportError, SandboxLostError: The infrastructure failed; the trial is void.
        """
        script = command_script(
            command,
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env) or {},
            user=self._resolve_user(user),
        )
        done = await self._run(script, timeout_sec)
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            return_code=done.exit_code,
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the pod."""
        await self._transfer(transfer.upload_file(self._pod_exec(), Path(source_path), PurePosixPath(target_path)))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a folder holds into a folder of the pod."""
        await self._transfer(transfer.upload_dir(self._pod_exec(), Path(source_dir), PurePosixPath(target_dir)))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the pod."""
        await self._transfer(transfer.download_file(self._pod_exec(), PurePosixPath(source_path), Path(target_path)))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a folder of the pod holds out of it."""
        await self._transfer(transfer.download_dir(self._pod_exec(), PurePosixPath(source_dir), Path(target_dir)))

    def _wanted_pod(self) -> TrialPod:
        task = self.task_env_config
        asked: dict[str, Any] = {}
        if task.cpus is not None:
            asked["cpu"] = str(task.cpus)
        if task.memory_mb is not None:
            asked["memory"] = f"{task.memory_mb}Mi"
        overridden = self._settings.requests is not None or self._settings.limits is not None
        return TrialPod(
            runner=self._runner,
            benchmark_run=self._settings.benchmark_run,
            session=self.session_id,
            nonce=secrets.token_hex(8),
            image=str(task.docker_image),
            deadline_seconds=self._settings.deadline_seconds,
            requests=(self._settings.requests or {}) if overridden else asked,
            limits=(self._settings.limits or {}) if overridden else asked,
            env=self._startup_env(),
        )

    def _pod_exec(self) -> PodExec:
        if self._exec is None:
            raise SandboxLostError(f"the pod of {self.session_id} is not running")
        return self._exec

    async def _run(self, script: str, timeout_seconds: float | None) -> Completed:
        try:
            return await self._pod_exec().run(script, timeout_seconds=timeout_seconds)
        except ExecTransportError as error:
            raise await self._lost_or(error) from error

    async def _transfer(self, copying: Any) -> None:
        try:
            await copying
        except (ExecTransportError, TransferError) as error:
            raise await self._lost_or(error) from error

    async def _lost_or(self, error: Exception) -> Exception:
        """Return the better explanation where the pod is no more, else `error`."""
        assert self._cluster is not None
        try:
            pod = await self._cluster.core.read_namespaced_pod(self._pod, self._runner.namespace)
        except ApiException as answer:
            return SandboxLostError(f"pod {self._pod} is gone") if answer.status == 404 else error
        if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
            return error
        return SandboxLostError(f"pod {self._pod} ended: {_pod_words(pod)}")

    async def _wait_until_running(self) -> None:
        assert self._cluster is not None
        limit = float(self.task_env_config.build_timeout_sec) * _SHARE_OF_BUILD_TIMEOUT
        words = "it was not scheduled"
        polls = 0
        try:
            async with asyncio.timeout(limit):
                while True:
                    pod = await self._cluster.core.read_namespaced_pod(self._pod, self._runner.namespace)
                    statuses = pod.status.container_statuses or []
                    if any(status.state.running for status in statuses):
                        return
                    words = _pod_words(pod)
                    waits = {status.state.waiting.reason for status in statuses if status.state.waiting}
                    if pod.status.phase in ("Failed", "Succeeded") or waits & _HOPELESS_WAITS:
                        raise PodStartError(f"pod {self._pod} cannot start: {words}")
                    polls += 1
                    await asyncio.sleep(_FAST_POLL_SECONDS if polls < _FAST_POLLS else _SLOW_POLL_SECONDS)
        except TimeoutError as error:
            raise PodStartError(f"pod {self._pod} did not start within {limit:.0f} s: {words}") from error
        except ApiException as error:
            raise PodStartError(f"pod {self._pod} did not start: {error.reason}") from error


def command_script(command: str, *, cwd: str | None, env: Mapping[str, str], user: str | int | None) -> str:
    """Return the script that runs a command as Harbor asks for it.

    Args:
        command: For bash.
        cwd: Working directory; the image's when absent.
        env: Variables that are added.
        user: Name or number. Only root can become another user, so in an image of a plain user all runs as that one.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]
    if cwd:
        lines.append(f"cd {shlex.quote(cwd)} || exit 1")
    if user is None or user in ("root", 0, "0"):
        return "\n".join([*lines, command])
    name = shlex.quote(str(user))
    lines.append(
        f'if [ "$(id -u)" = 0 ]; then exec su -s "$(command -v bash || command -v sh)" "$(id -un {name})"'
        f" -c {shlex.quote(command)}; fi"
    )
    return "\n".join([*lines, command])


async def create_pod(cluster: Cluster, manifest: Mapping[str, Any], *, dry_run: bool = False) -> None:
    """Create a pod, or ask whether it could be created.

    Raises:
        TrialsForbiddenError: RBAC, pod security or a quota forbids it; the message is the server's answer.
        PodStartError: The server refuses for another reason.
    """
    namespace = manifest["metadata"]["namespace"]
    options = {"dry_run": "All"} if dry_run else {}
    try:
        await cluster.core.create_namespaced_pod(namespace, dict(manifest), **options)
    except ApiException as error:
        message = _answer(error)
        if error.status == 403:
            raise TrialsForbiddenError(message) from error
        raise PodStartError(f"the API server refuses the trial pod: {message}") from error


async def sweep_pods(benchmark_run: str) -> int:
    """Delete the trial pods that a killed runner of the same run left, and return their number."""
    cluster, namespace = await Cluster.shared(), Runner.from_environment().namespace
    own = os.environ.get("POD_NAME")
    pods = await cluster.core.list_namespaced_pod(namespace, label_selector=pod_selector(benchmark_run))
    names = [pod.metadata.name for pod in pods.items if pod.metadata.name != own]
    for name in names:
        try:
            await cluster.core.delete_namespaced_pod(name, namespace, grace_period_seconds=1)
        except ApiException as error:
            if error.status != 404:
                raise
    return len(names)


def _answer(error: ApiException) -> str:
    import json

    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


def _pod_words(pod: Any) -> str:
    """Say in words why a pod does not run."""
    words = [
        f"{state.reason}: {state.message or ''}".rstrip(": ")
        for status in pod.status.container_statuses or []
        for state in (status.state.waiting, status.state.terminated)
        if state is not None
    ]
    words += [
        f"{condition.reason}: {condition.message}"
        for condition in pod.status.conditions or []
        if condition.type == "PodScheduled" and condition.status == "False"
    ]
    if pod.status.reason or pod.status.message:
        words.append(f"{pod.status.reason or ''}: {pod.status.message or ''}".strip(": "))
    return "; ".join(word for word in words if word) or f"phase {pod.status.phase}"
