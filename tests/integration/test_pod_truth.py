"""The real operator and real sidecars at fake engines that lie: what each pod really does decides what is told."""

import httpx
import pytest
from integration.engine_pods import SERVER_SPEC, Kubelet
from integration.operator_process import OperatorProcess
from integration.world import World
from support.waiting import eventually
from whetstone_api.digests import versioned_name
from whetstone_api.vocabulary import ADAPTER_HEADER

pytestmark = pytest.mark.integration
KIND = "ModelServer"
ASK = {"model": "tuned", "prompt": "x"}


def test_engine_that_computes_another_base_gets_no_clients_and_is_named(world: World, kubelet: Kubelet) -> None:
    source = kubelet.claims.publish("a")
    world.create(KIND, "server", {**SERVER_SPEC, "replicas": 2, "adapters": [{"name": "tuned", "source": source}]})
    kubelet.running(2)
    world.wait_reason(KIND, "server", "Serving")
    assert world.wait_reason(KIND, "server", "Verified", condition="BaseParity")["status"] == "True"
    name, wrong = min(kubelet.pods.items())
    wrong.engine.base_shift = -2.0
    wrong.engine.restart()
    ready = world.wait_reason(KIND, "server", "BaseDivergent")
    assert ready["status"] == "False"
    assert f"pod {name} gets no clients" in ready["message"]
    assert "spec.engine.dtype" in ready["message"]
    told = world.wait_reason(KIND, "server", "Divergent", condition="BaseParity")
    assert (told["status"], name in told["message"]) == ("False", True)
    kubelet.running(1)
    wrong.engine.base_shift = 0.0
    wrong.engine.restart()
    kubelet.running(2)
    world.wait_reason(KIND, "server", "Serving")


def test_engine_that_hangs_is_told_and_started_again_by_its_health_check(world: World, kubelet: Kubelet) -> None:
    source = kubelet.claims.publish("a")
    world.create(KIND, "server", {**SERVER_SPEC, "replicas": 2, "adapters": [{"name": "tuned", "source": source}]})
    kubelet.running(2)
    world.wait_reason(KIND, "server", "Serving")
    name, hanging = min(kubelet.pods.items())
    hanging.hang()
    ready = world.wait_reason(KIND, "server", "EngineStalled")
    assert ready["status"] == "False"
    assert f"pod {name} takes requests and generates nothing" in ready["message"]
    assert httpx.get(f"{hanging.url}/health", trust_env=False).status_code == 503
    kubelet.running(1)
    hanging.go_on()
    hanging.engine.restart()
    kubelet.running(2)
    world.wait_reason(KIND, "server", "Serving")
    assert list(hanging.engine.adapters) == [versioned_name("tuned", source["digest"])]


def test_every_pod_that_comes_holds_the_adapter_and_those_that_go_are_forgotten(world: World, kubelet: Kubelet) -> None:
    source = kubelet.claims.publish("a")
    version = versioned_name("tuned", source["digest"])
    world.create(KIND, "server", {**SERVER_SPEC, "adapters": [{"name": "tuned", "source": source}]})
    for replicas in (1, 3, 1):
        world.api.merge(KIND, "server", {"spec": {"replicas": replicas}}, namespace=world.namespace)
        pods = kubelet.running(replicas)
        assert [list(pod.engine.adapters) for pod in pods] == [[version]] * replicas

        def told(wanted: int = replicas) -> bool:
            [status] = world.get(KIND, "server")["status"]["adapters"]
            found = (status["loadedReplicas"], status["effectiveReplicas"])
            assert found == (wanted, wanted), f"{status}"
            return True

        eventually(told, what=f"the adapter effective on {replicas}")
        world.wait_reason(KIND, "server", "Serving")


def test_pods_that_come_while_the_operator_is_down_hold_what_they_should(
    world: World, operator: OperatorProcess, kubelet: Kubelet
) -> None:
    source = kubelet.claims.publish("a")
    version = versioned_name("tuned", source["digest"])
    world.create(KIND, "server", {**SERVER_SPEC, "replicas": 2, "adapters": [{"name": "tuned", "source": source}]})
    before = set(map(id, kubelet.running(2)))
    world.wait_reason(KIND, "server", "Serving")
    operator.kill()
    for pod in world.engine_pods():
        world.api.delete("Pod", pod["metadata"]["name"], namespace=world.namespace)
    eventually(lambda: not before & set(map(id, kubelet.pods.values())), what="the old pods are gone")
    pods = kubelet.running(2)
    assert [list(pod.engine.adapters) for pod in pods] == [[version], [version]]
    answers = [httpx.post(f"{pod.url}/v1/completions", json=ASK, trust_env=False) for pod in pods]
    assert [(answer.status_code, answer.headers.get(ADAPTER_HEADER)) for answer in answers] == [(200, version)] * 2
    operator.start()

    def told() -> bool:
        [status] = world.get(KIND, "server")["status"]["adapters"]
        return (status["loadedReplicas"], status["effectiveReplicas"]) == (2, 2)

    eventually(told, what="the status tells of both")
    world.wait_reason(KIND, "server", "Serving")


def test_killed_sidecar_takes_up_what_its_engine_holds_and_no_client_notices(world: World, kubelet: Kubelet) -> None:
    source = kubelet.claims.publish("a")
    version = versioned_name("tuned", source["digest"])
    world.create(KIND, "server", {**SERVER_SPEC, "adapters": [{"name": "tuned", "source": source}]})
    [pod] = kubelet.running(1)
    world.wait_reason(KIND, "server", "Serving")
    loads = pod.loads()
    pod.kill_sidecar()
    answer = httpx.post(f"{pod.url}/v1/completions", json=ASK, trust_env=False)
    assert (answer.status_code, answer.headers.get(ADAPTER_HEADER)) == (200, version)
    eventually(pod.is_ready, what="the new sidecar is ready")
    assert (list(pod.engine.adapters), pod.loads()) == ([version], loads)
    renewed = kubelet.claims.publish("b", alpha=80)
    changed = {"spec": {"adapters": [{"name": "tuned", "source": renewed}]}}
    world.api.merge(KIND, "server", changed, namespace=world.namespace)
    wanted = [versioned_name("tuned", renewed["digest"])]
    eventually(lambda: list(pod.engine.adapters) == wanted, what="the new sidecar follows the spec")


def test_required_adapter_that_the_engine_refuses_is_named_by_a_pod_that_waits(world: World, kubelet: Kubelet) -> None:
    source = kubelet.claims.publish("a", config={"use_dora": True})
    world.create(KIND, "server", {**SERVER_SPEC, "adapters": [{"name": "tuned", "source": source, "required": True}]})
    ready = world.wait_reason(KIND, "server", "AdapterInvalid")
    assert ready["status"] == "False"
    assert "waits for the required adapter tuned" in ready["message"]
    assert "use_dora=false" in ready["message"]
