"""The operator with many objects and many pods."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from integration.api import Object, Refused
from integration.engine_pods import SERVER_SPEC
from integration.operator_process import OperatorProcess
from integration.world import TIME, World
from support.protocol_sidecars import ProtocolSidecar, ProtocolSidecars

from whetstone_bench.figures import Figure, once
from whetstone_bench.stage import Stage, cpu_seconds, pause, resident_mebibytes

KIND = "ModelServer"
LOOK_SECONDS = 0.2
REST_SECONDS = 60.0
QUIET_SECONDS = 10.0
LONGEST_SECONDS = 300.0


def fleet(stage: Stage, *, servers: int) -> list[Figure]:
    """Measure a burst of servers, rest, a restart and memory."""
    with stage.world() as world, ProtocolSidecars(1) as sidecars, stage.operator(world) as operator:
        empty = resident_mebibytes(operator.pid)
        names = [f"s{number}" for number in range(servers)]
        before, used = len(stage.requests()), cpu_seconds(operator.pid)
        with ThreadPoolExecutor(10) as pool:
            seen = [
                pool.submit(_seen, world, "Deployment", servers, lambda _: True),
                pool.submit(_seen, world, KIND, servers, _has_status),
            ]
            begin = time.monotonic()
            list(pool.map(lambda name: world.create(KIND, name, SERVER_SPEC), names))
            created = time.monotonic() - begin
            deployments, statuses = (one.result() - begin for one in seen)
        burst, used = len(stage.requests()) - before, cpu_seconds(operator.pid) - used
        _start_pods(world, servers, cycle(sidecars.pods))
        _until(lambda: all(_is_ready(one) for one in _servers(world)))
        figures = [
            once(f"{servers} servers created at once: the creation itself", created, "s"),
            once(f"{servers} servers created at once -> all Deployments", deployments, "s"),
            once(f"{servers} servers created at once -> all statuses", statuses, "s"),
            once("the same: requests to the API server a server", round(burst / servers, 1), ""),
            once("the same: processor time of the operator a server", used / servers, "s"),
        ]
        figures += _rest(stage, operator, f"{servers} servers")
        operator.kill()
        begin = time.monotonic()
        operator.start()
        up = time.monotonic() - begin
        done = _until(lambda: operator.metric("whetstone_reconcile_total") >= servers) - begin
        return [
            *figures,
            once(f"operator restarted with {servers} servers -> its watches run", up, "s"),
            once(f"operator restarted with {servers} servers -> all reconciled", done, "s"),
            once("resident memory of the operator, no object", empty, "MiB"),
            once(f"resident memory of the operator, {servers} servers", resident_mebibytes(operator.pid), "MiB"),
        ]


def many_pods(stage: Stage, *, pods: int, adapters: int) -> list[Figure]:
    """Measure how soon one server's many pods hold many adapters, and what they cost at rest."""
    with stage.world() as world, ProtocolSidecars(pods) as sidecars, stage.operator(world) as operator:
        world.create(KIND, "server", {**SERVER_SPEC, "replicas": pods})
        url = operator.report_url(f"modelservers/{world.namespace}/server")
        _start_pods(world, pods, iter(sidecars.pods), url=url)
        _until(lambda: _is_ready(_servers(world)[0]))
        wanted = [
            {"name": f"a{n}", "source": {"uri": f"pvc://adapters/a{n}", "digest": "sha256:" + f"{n:064x}"}}
            for n in range(adapters)
        ]
        before, asked, begin = len(stage.requests()), _asked(sidecars), time.monotonic()
        world.api.merge(KIND, "server", {"spec": {"adapters": wanted}}, namespace=world.namespace)

        def converged() -> bool:
            found = _servers(world)[0]["status"].get("adapters", [])
            return len(found) == adapters and all(one["effectiveReplicas"] == pods for one in found)

        took = _until(converged) - begin
        what = f"{adapters} adapters on {pods} pods"
        return [
            once(f"{what}: spec changed -> all effective", took, "s"),
            once("the same: requests to the API server", len(stage.requests()) - before, ""),
            once("the same: requests to each sidecar", round((_asked(sidecars) - asked) / pods, 1), ""),
            *_rest(stage, operator, what),
        ]


def _rest(stage: Stage, operator: OperatorProcess, what: str) -> list[Figure]:
    """Count what the operator does in a minute in which nothing happens."""
    # The controller manager limits its own requests and goes on writing statuses for a while.
    count = -1
    while count != (count := len(stage.requests())):
        pause(QUIET_SECONDS)
    used = cpu_seconds(operator.pid)
    pause(REST_SECONDS)
    after = len(stage.requests()) - count
    return [
        once(f"at rest, {what}: requests to the API server a minute", after, ""),
        once(f"at rest, {what}: processor time of the operator a minute", cpu_seconds(operator.pid) - used, "s"),
    ]


def _start_pods(world: World, number: int, sidecars: Iterable[ProtocolSidecar], *, url: str | None = None) -> None:
    """Let every engine pod become Ready at the address of a sidecar."""
    _until(lambda: len(_engine_pods(world)) >= number)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}
    pairs = list(zip(_engine_pods(world), sidecars, strict=False))

    def start(pair: tuple[Object, ProtocolSidecar]) -> None:
        pod, sidecar = pair
        if url is not None:
            sidecar.report = (url, world.pod_token(pod))
        place = {"podIP": sidecar.address, "podIPs": [{"ip": sidecar.address}]}
        world.set_pod_status(pod, {"phase": "Running", "startTime": TIME, "conditions": [ready], **place})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, pairs))


def _engine_pods(world: World) -> list[Object]:
    return world.api.list("Pod", namespace=world.namespace, labels="whetstone.dev/model-server")


def _servers(world: World) -> list[Object]:
    return [{"status": {}, **one} for one in world.api.list(KIND, namespace=world.namespace)]


def _has_status(server: Object) -> bool:
    return bool(server["status"].get("conditions"))


def _is_ready(server: Object) -> bool:
    conditions = server["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _asked(sidecars: ProtocolSidecars) -> int:
    return sum(pod.asked for pod in sidecars.pods)


def _seen(world: World, kind: str, number: int, fits: Callable[[Object], bool]) -> float:
    """Return the monotonic time at which so many objects of a kind fitted. A watch: lists would slow what is timed."""
    names = set()
    for obj in world.api.watch(kind, namespace=world.namespace):
        if fits({"status": {}, **obj}):
            names.add(obj["metadata"]["name"])
        if len(names) >= number:
            break
    return time.monotonic()


def _until(done: Callable[[], bool]) -> float:
    """Wait for a condition; return the monotonic time at which it was seen."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        try:
            if done():
                return time.monotonic()
        except Refused as error:
            if error.status < 500:
                raise
        pause(LOOK_SECONDS)
    raise TimeoutError("a measurement did not come to its end")
