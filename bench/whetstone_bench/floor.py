"""What the API server alone takes for what the operator writes: the least that any operator would need here."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from integration.api import Object
from integration.engine_pods import SERVER_SPEC
from whetstone_api.modelserver import ModelServer
from whetstone_api.pod_state import DesiredState
from whetstone_api.vocabulary import API_VERSION, ConditionType, Reason
from whetstone_operator.kube import KubeAio
from whetstone_operator.resources import modelserver as build
from whetstone_operator.resources.access import access_policy, build_access
from whetstone_operator.runtime.clock import ClusterClock, to_rfc3339
from whetstone_operator.runtime.events import NORMAL, EventRecorder
from whetstone_operator.settings import Settings

from whetstone_bench.figures import Figure, once
from whetstone_bench.stage import Stage

SETTINGS = Settings(
    server_image="registry.test/server:1",
    trainer_image="registry.test/trainer:1",
    benchmark_image="registry.test/benchmark:1",
    operator_url="http://operator.test:8080",
)
CONDITIONS = (
    ConditionType.READY,
    ConditionType.RECONCILING,
    ConditionType.ADAPTERS_LOADED,
    ConditionType.ADAPTER_EFFECTIVE,
    ConditionType.BASE_PARITY,
)


def bare_writes(stage: Stage, *, servers: int) -> Figure:
    """Measure a bare loop of the writes that a burst of servers causes, with the operator's client and workers."""
    with stage.world() as world:
        begin = time.monotonic()
        with ThreadPoolExecutor(10) as pool:
            names = [f"s{number}" for number in range(servers)]
            created = list(pool.map(lambda name: world.create("ModelServer", name, SERVER_SPEC), names))
        asyncio.run(_write_all(stage, created))
        took = time.monotonic() - begin
    return once(f"{servers} servers created at once: the same writes in a bare loop, without an operator", took, "s")


async def _write_all(stage: Stage, created: list[Object]) -> None:
    kube = await KubeAio.connect(stage.kubeconfig)
    recorder = EventRecorder(kube, clock=ClusterClock())
    free = asyncio.Semaphore(SETTINGS.workers)

    async def write(obj: Object) -> None:
        async with free:
            await _write(kube, recorder, ModelServer.model_validate({"status": {}, **obj}))

    await asyncio.gather(*(write(obj) for obj in created))
    await kube.close()


async def _write(kube: KubeAio, recorder: EventRecorder, server: ModelServer) -> None:
    token = "0" * 64
    await kube.create(build_access(server, access_policy(server, {}, token=token), token=token))
    desired = DesiredState(
        server=server.metadata.name, revision=1, base_name="base", model_path="/m", max_rank=16, dtype="auto"
    )
    await kube.apply(build.build_desired(server, desired), look=False)
    await asyncio.gather(
        kube.apply(build.build_service(server), look=False),
        kube.apply(build.build_disruption_budget(server), look=False),
        kube.apply(build.build_deployment(server, SETTINGS), look=False),
    )
    await kube.apply_status(_status(server))
    await recorder.record(server, kind=NORMAL, reason=Reason.PROGRESSING, message="an engine is loading the model")


def _status(server: ModelServer) -> dict[str, Any]:
    metadata = server.metadata
    shared = {"status": "True", "reason": Reason.PROGRESSING, "message": "as long as a sentence for people usually is"}
    now = to_rfc3339(ClusterClock().now())
    conditions = [{"type": name, **shared, "lastTransitionTime": now, "observedGeneration": 1} for name in CONDITIONS]
    return {
        "apiVersion": API_VERSION,
        "kind": server.kind_name,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "status": {"observedGeneration": 1, "conditions": conditions, "url": build.server_url(server)},
    }
