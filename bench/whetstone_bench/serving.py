"""From publication to effect, and how soon a replacement pod serves: real operator, real sidecars, fake engines."""

import time
from collections.abc import Callable
from functools import partial

import httpx
from integration.api import Object
from integration.engine_pods import SERVER_SPEC, EnginePod, Kubelet
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, World
from support.waiting import eventually
from whetstone_api.pod_state import SIDECAR_PORT

from whetstone_bench.figures import Figure, spread
from whetstone_bench.stage import Stage

KIND = "ModelServer"
PROBE_CASES = 4
PROBE_SERIES = "whetstone_adapter_probe_seconds"


def publish_to_effective(stage: Stage, *, replicas: int, samples: int) -> list[Figure]:
    """Measure from the trainer's report, and from the end of its Job, until the status says effective everywhere."""
    names = [f"a{number}" for number in range(samples + 2)]
    reported: list[float] = []
    ended: list[float] = []
    with (
        stage.world() as world,
        stage.operator(world) as operator,
        Kubelet(world, operator, stage.folder / world.namespace) as kubelet,
    ):
        adapters = [{"name": name, "trainingJobRef": {"name": f"train-{name}"}} for name in names]
        world.create(KIND, "server", {**SERVER_SPEC, "replicas": replicas, "adapters": adapters})
        jobs = {name: _train(world, name) for name in names}
        kubelet.running(replicas)
        for number, name in enumerate(names):
            published = {**ADAPTER, **kubelet.claims.publish(name, alpha=20 + number, cases=PROBE_CASES)}
            if number < samples:
                tell = _reporting(world, operator, name=name, job=jobs[name], published=published)
                reported.append(_until_effective(world, tell, digest=published["digest"], replicas=replicas))
            else:
                job = jobs[name]

                def end(job: Object = job, published: Object = published) -> None:
                    world.end_well(job, adapter=published, metrics={})

                ended.append(_until_effective(world, end, digest=published["digest"], replicas=replicas))
        probes = [_probe_seconds(pod) for pod in kubelet.running(replicas)]
    what = f"{replicas} replica" + ("s" if replicas > 1 else "")
    return [
        spread(f"probe of {PROBE_CASES} answers by the sidecar, {what}", probes, "s"),
        spread(f"publication reported -> effective on {what}", reported[1:], "s"),
        spread(f"pod of the Job ended -> effective on {what} (no report)", ended, "s"),
    ]


def replacement(stage: Stage, *, adapters: int, samples: int) -> Figure:
    """Measure from the start of a replacement pod's containers until it is ready with its adapters."""
    took: list[float] = []
    with (
        stage.world() as world,
        stage.operator(world) as operator,
        Kubelet(world, operator, stage.folder / world.namespace) as kubelet,
    ):
        wanted = [
            {"name": f"a{n}", "source": kubelet.claims.publish(f"a{n}", alpha=20 + n, cases=PROBE_CASES)}
            for n in range(adapters)
        ]
        world.create(KIND, "server", {**SERVER_SPEC, "adapters": wanted})
        for _ in range(samples):
            [pod] = kubelet.running(1)
            took.append((pod.ready_at or 0) - pod.started_at)
            assert len(pod.engine.adapters) == adapters, f"ready with {len(pod.engine.adapters)} adapters"
            [name] = [one["metadata"]["name"] for one in world.engine_pods()]
            world.api.delete("Pod", name, namespace=world.namespace)
            eventually(partial(_is_gone, kubelet, name), what="the old pod is gone")
    noun = "adapter" if adapters == 1 else "adapters"
    return spread(f"replacement pod started -> ready with {adapters} {noun}", took, "s")


def _is_gone(kubelet: Kubelet, pod: str) -> bool:
    return pod not in kubelet.pods


def _probe_seconds(pod: EnginePod) -> float:
    """Return the mean time of a sidecar's probes; the engine answers at once, so all of it is ours."""
    text = httpx.get(f"http://{pod.address}:{SIDECAR_PORT}/metrics", trust_env=False, timeout=10).text
    values = dict(line.split(" ") for line in text.splitlines() if line.startswith(PROBE_SERIES))
    return float(values[f"{PROBE_SERIES}_sum"]) / float(values[f"{PROBE_SERIES}_count"])


def _train(world: World, name: str) -> Object:
    output = {"adapter": {"uri": f"pvc://adapters/{name}"}}
    world.train(f"train-{name}", baseModel={"modelServerRef": {"name": "server"}}, output=output)
    world.end_well(world.wait_job(f"train-{name}", "prepare"), dataset=DATASET)
    return world.wait_job(f"train-{name}", "train")


def _reporting(
    world: World, operator: OperatorProcess, *, name: str, job: Object, published: Object
) -> Callable[[], None]:
    pod = eventually(lambda: world.pods(job), what="a pod")[0]
    token = world.pod_token(pod)
    path = f"loratrainingjobs/{world.namespace}/train-{name}"
    # A trainer has reported its steps before; the operator knows its token.
    operator.report(path, token=token, body={"phase": "Train", "step": 1})

    def tell() -> None:
        status = operator.report(path, token=token, body={"phase": "Publish", "adapter": published})
        assert status == 202, f"the report was answered with {status}"

    return tell


def _until_effective(world: World, begin: Callable[[], None], *, digest: str, replicas: int) -> float:
    changes = world.api.watch(KIND, namespace=world.namespace, name="server")
    next(changes)
    start = time.monotonic()
    begin()
    for server in changes:
        for adapter in server.get("status", {}).get("adapters", []):
            if adapter.get("digest") == digest and adapter["effectiveReplicas"] == replicas:
                return time.monotonic() - start
    raise RuntimeError("the watch ended")
