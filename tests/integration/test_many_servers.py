"""What many servers cost the API server once nothing happens any more."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from integration.operator_process import OperatorProcess
from integration.world import World, engine_status
from support.protocol_sidecars import ProtocolSidecars
from support.waiting import eventually

KIND = "ModelServer"
SERVERS = [f"server-{number}" for number in range(20)]
ENGINE = {"resources": {"limits": {"cpu": "2000m", "memory": "2048Mi"}}}


@pytest.fixture
def fleet(world: World, operator: OperatorProcess) -> Iterator[World]:
    """Servers that are all Ready, each with a pod whose sidecar answers."""
    world.claims()
    with ProtocolSidecars(len(SERVERS)) as sidecars, ThreadPoolExecutor(8) as pool:

        def serve(name: str, address: str) -> None:
            world.serve(name, **ENGINE)
            [pod] = eventually(lambda: world.engine_pods(name), what=f"the pod of {name}")
            world.set_pod_status(pod, engine_status(address))
            world.wait_reason(KIND, name, "Serving")

        list(pool.map(serve, SERVERS, [sidecar.address for sidecar in sidecars.pods]))
        yield world


def test_what_kubernetes_writes_at_rest_is_not_answered_with_requests(
    fleet: World, operators_requests: Callable[[], list[str]]
) -> None:
    """The last server is changed for real: once its Secrets are read, what came before it has been heard too.

    No watch tells of Secrets, so a reconcile always reads them.
    """
    *quiet, last = SERVERS
    round_number = 0

    def nothing_but_reads_of_the_last() -> bool:
        nonlocal round_number
        round_number += 1
        before = len(operators_requests())
        for name in quiet:
            told = {"currentHealthy": round_number, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 1}
            fleet.api.merge(
                "PodDisruptionBudget", f"{name}-engine", {"status": told}, namespace=fleet.namespace, status=True
            )
        note = {"metadata": {"annotations": {"example.com/round": str(round_number)}}}
        fleet.api.merge("PodDisruptionBudget", f"{last}-engine", note, namespace=fleet.namespace)
        fleet.api.merge(KIND, last, note, namespace=fleet.namespace)
        eventually(
            lambda: [one for one in operators_requests()[before:] if f"/secrets/{last}-" in one],
            what="a reconcile of the last server",
        )
        asked = operators_requests()[before:]
        unwanted = [one for one in asked if not _is_read_of(one, last)]
        assert not unwanted, f"{len(unwanted)} of {len(asked)} requests: {unwanted[:20]}"
        return True

    eventually(nothing_but_reads_of_the_last, what="rest")


def test_restarted_operator_asks_for_no_child_that_its_watches_tell(
    fleet: World, operator: OperatorProcess, operators_requests: Callable[[], list[str]]
) -> None:
    before = len(operators_requests())
    operator.kill()
    operator.start()
    eventually(lambda: operator.metric("whetstone_reconcile_total") >= len(SERVERS), what="all are reconciled")
    asked = [one.split("?")[0] for one in operators_requests()[before:]]
    followed = ("deployments", "services", "poddisruptionbudgets", "jobs", "pods", "configmaps", "modelservers")
    assert [one for one in asked if one.startswith("get ") and one.split("/")[-2] in followed] == []


def test_children_of_a_new_server_are_written_without_a_look(
    world: World, operator: OperatorProcess, operators_requests: Callable[[], list[str]]
) -> None:
    world.claims()
    world.serve()
    world.wait_reason(KIND, "server", "EngineStarting")
    asked = [one.split("?")[0].split() for one in operators_requests() if f"/{world.namespace}/" in one]
    first: dict[str, str] = {}
    for verb, path in asked:
        first.setdefault(path.rpartition(f"/{world.namespace}/")[2], verb)
    children = ("services/server", "deployments/server-engine", "poddisruptionbudgets/server-engine")
    assert {child: first.get(child) for child in children} == dict.fromkeys(children, "patch")
    # An apply would merge these into another object of the name. One ConfigMap is the namespace's claim.
    for plural, number in {"configmaps": 2, "secrets": 1}.items():
        verbs = [verb for verb, path in asked if f"/{world.namespace}/{plural}" in path]
        changes = [verb for verb in verbs if verb not in ("get", "list", "watch")]
        assert changes == ["create"] * number
        assert verbs.index("create") < (verbs.index("get") if "get" in verbs else len(verbs))


def _is_read_of(request: str, server: str) -> bool:
    verb = request.split()[0]
    return verb in ("get", "list") and (server in request or "/persistentvolumeclaims/" in request)
