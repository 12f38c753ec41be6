"""What the runner's trials share of the cluster."""

import asyncio
from types import SimpleNamespace
from typing import Any

from whetstone_agent.environment.cluster import Cluster, Runner, RunnerPod


class Core:
    """Answers for the runner's pod, and not at once."""

    def __init__(self) -> None:
        self.asked = 0

    async def read_namespaced_pod(self, name: str, namespace: str) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        container, secret = SimpleNamespace(image="benchmark:1"), SimpleNamespace(name="registry")
        return SimpleNamespace(spec=SimpleNamespace(containers=[container], image_pull_secrets=[secret]))


async def test_trials_that_start_together_all_know_the_image_and_the_secrets_of_their_runner() -> None:
    cluster = Cluster(object())
    core = cluster.core = Core()
    runner = Runner(namespace="team", pod_name="runner", pod_uid="u")
    found = await asyncio.gather(*(cluster.runner_pod(runner) for _ in range(3)))
    assert found == [RunnerPod(image="benchmark:1", pull_secrets=("registry",))] * 3
    assert core.asked == 1
