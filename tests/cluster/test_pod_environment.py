"""Trials' pods on a real node: commands, timeouts, copies, ownership, and what happens when a pod cannot start."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException
from support.runner_namespace import runner_namespace
from support.sandbox import environment, started
from support.waiting import DEADLINE_SECONDS, machine_factor
from whetstone_agent.environment.cluster import Cluster
from whetstone_agent.environment.creation import sweep
from whetstone_agent.environment.errors import PodStartError, SandboxLostError, TransferError, TrialsForbiddenError
from whetstone_agent.environment.manifest import CONTAINER
from whetstone_dev.images import references_of

pytestmark = pytest.mark.cluster


@pytest.fixture
async def namespace(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A namespace of the test's own, in which the runner is."""
    async with runner_namespace(monkeypatch) as name:
        yield name


async def gone(read: Callable[[], Awaitable[Any]]) -> None:
    """Wait until an object is no more, by asking the API server."""
    import asyncio

    async with asyncio.timeout(DEADLINE_SECONDS * machine_factor()):
        while True:
            try:
                await read()
            except ApiException as error:
                if error.status == 404:
                    return
                raise
            await asyncio.sleep(0.2)


async def test_commands_run_in_the_workdir_with_exit_code_output_and_variables(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "given.txt").write_text("given\n")
    async with started(tmp_path, env={"FROM_TASK": "1"}) as sandbox:
        command = "cat given.txt; pwd; echo $FROM_TASK $HERE; echo bad >&2; exit 7"
        result = await sandbox.exec(command, env={"HERE": "a b"})
        assert result.return_code == 7
        assert result.stdout == "given\n/app\n1 a b\n"
        assert result.stderr == "bad\n"
        assert (await sandbox.exec("true", user="root")).return_code == 0
        assert (await sandbox.exec("id -un", user="nobody")).stdout == "nobody\n"
        assert await sandbox.is_dir("/app")
        assert not await sandbox.is_file("/app/none")


async def test_a_megabyte_of_output_arrives_whole(namespace: str, tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        result = await sandbox.exec("head -c 1000000 /dev/zero | tr '\\0' x; echo end >&2")
        assert result.stdout is not None
        assert len(result.stdout) == 1_000_000
        assert set(result.stdout) == {"x"}
        assert result.stderr == "end\n"


async def test_random_bytes_survive_the_way_there_and_back(namespace: str, tmp_path: Path) -> None:
    data = secrets.token_bytes(200_000)
    source, target = tmp_path / "there.bin", tmp_path / "back" / "again.bin"
    source.write_bytes(data)
    async with started(tmp_path) as sandbox:
        await sandbox.upload_file(source, "/app/deep er/there.bin")
        summed = await sandbox.exec("sha256sum '/app/deep er/there.bin'")
        assert (summed.stdout or "").split()[0] == hashlib.sha256(data).hexdigest()
        await sandbox.download_file("/app/deep er/there.bin", target)
        with pytest.raises(TransferError, match=r"none\.bin"):
            await sandbox.download_file("/app/none.bin", target)
    assert target.read_bytes() == data


async def test_folders_are_copied_by_content_and_links_stay_behind(namespace: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "inner" / "run.sh").chmod(0o755)
    async with started(tmp_path) as sandbox:
        await sandbox.upload_dir(source, "/tests")
        assert (await sandbox.exec("/tests/inner/run.sh")).stdout == "ran\n"
        await sandbox.exec("mkfifo /tests/pipe; ln -s /etc/passwd /tests/link")
        await sandbox.download_dir("/tests", tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["inner"]
    assert (tmp_path / "copy" / "inner" / "run.sh").read_text() == "#!/bin/sh\necho ran\n"


async def test_a_command_out_of_time_gives_124_and_leaves_no_process(namespace: str, tmp_path: Path) -> None:
    async with started(tmp_path) as sandbox:
        result = await sandbox.exec("echo begun; (sleep 4321 & sleep 4321) | cat; sleep 4321", timeout_sec=2)
        assert result.return_code == 124
        assert result.stdout == "begun\n"
        listed = await sandbox.exec("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null")
        assert "sleep 4321" not in (listed.stdout or "")


async def test_the_pod_is_bounded_has_no_token_and_ends_with_its_runner(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster.shared()
    async with started(tmp_path) as runner:
        owner = await cluster.core.read_namespaced_pod(runner.pod_name, namespace)
        monkeypatch.setenv("POD_NAME", owner.metadata.name)
        monkeypatch.setenv("POD_UID", owner.metadata.uid)
        async with started(tmp_path) as sandbox:
            pod = await cluster.core.read_namespaced_pod(sandbox.pod_name, namespace)
            assert pod.metadata.owner_references[0].uid == owner.metadata.uid
            assert pod.metadata.labels["whetstone.dev/benchmark-run"] == "run"
            assert pod.spec.active_deadline_seconds == 600
            assert pod.spec.automount_service_account_token is False
            assert not await sandbox.is_dir("/var/run/secrets/kubernetes.io")
            assert pod.spec.containers[0].name == CONTAINER
            await runner.stop(delete=True)
            await gone(lambda: cluster.core.read_namespaced_pod(sandbox.pod_name, namespace))
            with pytest.raises(SandboxLostError, match="is gone"):
                await sandbox.exec("true")


async def test_an_image_that_does_not_exist_is_named(namespace: str, tmp_path: Path) -> None:
    image = references_of()["task"].rsplit(":", 1)[0] + ":none"
    with pytest.raises(PodStartError, match=r"ErrImagePull|ImagePullBackOff") as failure:
        async with started(tmp_path, docker_image=image, build_timeout_sec=10):
            pass
    assert image in str(failure.value)


async def test_a_pod_that_no_node_can_hold_says_so(namespace: str, tmp_path: Path) -> None:
    with pytest.raises(PodStartError, match="Insufficient cpu"):
        async with started(tmp_path, options={"requests": {"cpu": "900"}, "queue_seconds": 3}):
            pass


async def test_a_namespace_of_restricted_pod_security_refuses(namespace: str, tmp_path: Path) -> None:
    cluster = await Cluster.shared()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.core.patch_namespace(namespace, {"metadata": {"labels": labels}})
    with pytest.raises(TrialsForbiddenError, match="violates PodSecurity"):
        async with started(tmp_path):
            pass


async def test_pods_of_a_killed_runner_are_swept(namespace: str, tmp_path: Path) -> None:
    cluster = await Cluster.shared()
    left = environment(tmp_path)
    await left.start(force_build=False)
    assert await sweep("run") == 1
    await gone(lambda: cluster.core.read_namespaced_pod(left.pod_name, namespace))
    assert await sweep("run") == 0


async def test_an_image_without_tmux_gets_the_runners(namespace: str, tmp_path: Path) -> None:
    async with started(tmp_path) as bare:
        assert (await bare.exec("command -v tmux")).return_code != 0
    options = {"tmux": True, "tmux_image": references_of()["benchmark"]}
    async with started(tmp_path, options=options) as sandbox:
        await sandbox.exec("tmux new-session -x 80 -y 24 -d -s work 'bash --login'")
        await sandbox.exec("tmux send-keys -t work 'echo grüße >said; tmux wait -S done' Enter; tmux wait done")
        assert (await sandbox.exec("cat said; tmux capture-pane -p -t work | grep -c grüße")).stdout == "grüße\n1\n"
