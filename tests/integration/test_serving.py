"""The real operator and real sidecars at fake engines: what is served, and that nobody holds up others."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from integration.api import Api, Object
from integration.engine_pods import SERVER_SPEC, EnginePod, Kubelet
from integration.operator_process import OperatorProcess
from integration.world import ADAPTER, DATASET, TIME, TRAINING_SPEC, World
from support.fake_vllm import BASE
from support.waiting import eventually
from whetstone_api.digests import versioned_name
from whetstone_api.vocabulary import ADAPTER_HEADER, API_VERSION, SESSION_HEADER

pytestmark = pytest.mark.integration
KIND = "ModelServer"


@pytest.fixture
def other(api: Api) -> Iterator[World]:
    """A second namespace."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    api.raw("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield World(api, name)
    api.raw("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def operator_of_both(
    operator_kubeconfig: Path, world: World, other: World, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """The running operator, serving both namespaces."""
    names = f"{world.namespace},{other.namespace}"
    process = OperatorProcess(kubeconfig=operator_kubeconfig, namespace=names, log=tmp_path / "operator.log")
    process.start()
    yield process
    process.stop()


def serve(world: World, name: str = "server", **changes: object) -> None:
    """Create a server that fake engines can serve."""
    world.create(KIND, name, {**SERVER_SPEC, **changes})


def adapters(world: World, server: str = "server") -> list[Object]:
    """Return a server's status of its adapters."""
    found: list[Object] = world.get(KIND, server)["status"].get("adapters", [])
    return found


def wait_effective(world: World, digest: str, *, replicas: int, server: str = "server") -> Object:
    """Wait until a version is effective on so many replicas; return its status."""

    def found() -> Object | None:
        status = next((one for one in adapters(world, server) if one.get("digest") == digest), None)
        assert status is not None, f"{adapters(world, server)}"
        assert status["effectiveReplicas"] == replicas, f"{status}"
        return status

    return eventually(found, what=f"{digest[:15]} effective on {replicas}")


def test_reported_publication_is_served_before_the_pod_ends(
    world: World, operator: OperatorProcess, kubelet: Kubelet
) -> None:
    serve(world, replicas=2, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
    world.train(baseModel={"modelServerRef": {"name": "server"}})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    pod = eventually(lambda: world.pods(world.wait_job("train", "train")), what="a pod")[0]
    pods = kubelet.running(2)
    published = {**ADAPTER, **kubelet.claims.publish("a")}
    path = f"loratrainingjobs/{world.namespace}/train"
    body = {"phase": "Publish", "adapter": published}
    assert operator.report(path, token=world.pod_token(pod), body=body) == 202
    wait_effective(world, published["digest"], replicas=2)
    assert world.condition("LoRATrainingJob", "train", "Complete") is None
    assert [list(pod.engine.adapters) for pod in pods] == [[versioned_name("tuned", published["digest"])]] * 2


def test_reported_digest_that_is_not_there_is_never_served(
    world: World, operator: OperatorProcess, kubelet: Kubelet
) -> None:
    serve(world, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
    world.train(baseModel={"modelServerRef": {"name": "server"}})
    world.end_well(world.wait_job("train", "prepare"), dataset=DATASET)
    job = world.wait_job("train", "train")
    pod = eventually(lambda: world.pods(job), what="a pod")[0]
    [engine_pod] = kubelet.running(1)
    truth = {**ADAPTER, **kubelet.claims.publish("a")}
    body = {"phase": "Publish", "adapter": ADAPTER}
    assert operator.report(f"loratrainingjobs/{world.namespace}/train", token=world.pod_token(pod), body=body) == 202
    world.wait_reason(KIND, "server", "DigestMismatch", condition="AdapterEffective")
    assert engine_pod.loads() == []
    world.end_well(job, adapter=truth, metrics={})
    wait_effective(world, truth["digest"], replicas=1)


def test_changed_version_of_a_live_adapter_is_loaded(world: World, kubelet: Kubelet) -> None:
    first, second = kubelet.claims.publish("first", alpha=50), kubelet.claims.publish("second", alpha=80)
    serve(world, replicas=2, adapters=[{"name": "tuned", "source": first}])
    wait_effective(world, first["digest"], replicas=2)
    changed = {"spec": {"adapters": [{"name": "tuned", "source": second}]}}
    world.api.merge(KIND, "server", changed, namespace=world.namespace)
    wait_effective(world, second["digest"], replicas=2)
    names = [versioned_name("tuned", second["digest"])]
    eventually(
        lambda: [list(pod.engine.adapters) for pod in kubelet.running(2)] == [names, names],
        what="engines hold the new version only",
    )


def test_refused_load_is_told_backs_off_and_holds_up_no_other_pod(world: World, kubelet: Kubelet) -> None:
    serve(world, replicas=2)
    bad, good = kubelet.running(2)
    source = kubelet.claims.publish("a")
    version = versioned_name("tuned", source["digest"])
    bad.engine.refuse_loads[version] = (404, "no LoRA slot of that rank")
    changed = {"spec": {"adapters": [{"name": "tuned", "source": source}]}}
    world.api.merge(KIND, "server", changed, namespace=world.namespace)
    wait_effective(world, source["digest"], replicas=1)
    told = world.wait_reason(KIND, "server", "LoadFailed", condition="AdaptersLoaded")
    assert "no LoRA slot of that rank (HTTP 404)" in told["message"]
    assert list(good.engine.adapters) == [version]
    assert len(bad.loads()) == 1
    assert world.condition(KIND, "server", "Ready")["status"] == "True"  # type: ignore[index]
    bad.engine.refuse_loads.clear()
    wait_effective(world, source["digest"], replicas=2)
    assert len(bad.loads()) == 2


def test_engine_whose_list_hangs_holds_up_no_other_pod(world: World, kubelet: Kubelet) -> None:
    serve(world, replicas=2)
    hanging, healthy = kubelet.running(2)
    hanging.hold_lists()
    source = kubelet.claims.publish("a")
    changed = {"spec": {"adapters": [{"name": "tuned", "source": source}]}}
    world.api.merge(KIND, "server", changed, namespace=world.namespace)
    wait_effective(world, source["digest"], replicas=1)
    assert list(healthy.engine.adapters) == [versioned_name("tuned", source["digest"])]
    hanging.let_lists_go_on()
    wait_effective(world, source["digest"], replicas=2)


def test_server_whose_pods_are_gone_is_not_ready_and_recovers_with_its_adapters(world: World, kubelet: Kubelet) -> None:
    source = kubelet.claims.publish("a")
    serve(world, replicas=2, adapters=[{"name": "tuned", "source": source}])
    wait_effective(world, source["digest"], replicas=2)
    world.wait_reason(KIND, "server", "Serving")
    for pod in world.engine_pods():
        world.api.delete("Pod", pod["metadata"]["name"], namespace=world.namespace)
    assert world.wait_reason(KIND, "server", "EngineStarting")["status"] == "False"
    wait_effective(world, source["digest"], replicas=2)
    world.wait_reason(KIND, "server", "Serving")


def test_servers_with_one_adapter_name_do_not_touch_each_other(world: World, kubelet: Kubelet) -> None:
    ours, theirs = kubelet.claims.publish("ours", alpha=50), kubelet.claims.publish("theirs", alpha=80)
    for name, source in (("ours", ours), ("theirs", theirs)):
        serve(world, name, adapters=[{"name": "tuned", "source": source}])
        wait_effective(world, source["digest"], replicas=1, server=name)
    [pod] = kubelet.running(1, server="theirs")
    calls = len(pod.loads())
    world.api.merge(KIND, "ours", {"spec": {"adapters": None}}, namespace=world.namespace)
    [left] = kubelet.running(1, server="ours")
    eventually(lambda: not left.engine.adapters, what="ours is unloaded")
    assert list(pod.engine.adapters) == [versioned_name("tuned", theirs["digest"])]
    assert len(pod.loads()) == calls


def test_alias_with_several_targets_answers_a_session_alike_on_every_replica(world: World, kubelet: Kubelet) -> None:
    first, second = kubelet.claims.publish("first", alpha=50), kubelet.claims.publish("second", alpha=80)
    named = [{"name": "one", "source": first}, {"name": "two", "source": second}]
    targets = [{"adapter": "one", "weight": 1}, {"adapter": "two", "weight": 1}]
    serve(world, replicas=2, adapters=named, aliases=[{"name": "ab", "targets": targets}])
    pods = kubelet.running(2)
    versions = {versioned_name("one", first["digest"]), versioned_name("two", second["digest"])}

    def targets_in_status() -> set[str]:
        aliases = world.get(KIND, "server")["status"].get("aliases") or [{"targets": []}]
        return {one["servedName"] for one in aliases[0]["targets"]}

    eventually(lambda: targets_in_status() == versions, what="the alias has both targets")

    def answering(pod: EnginePod, session: str) -> str:
        answer = httpx.post(
            f"{pod.url}/v1/completions",
            json={"model": "ab", "prompt": "x"},
            headers={SESSION_HEADER: session},
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text
        return answer.headers[ADAPTER_HEADER]

    sessions = [f"s{number}" for number in range(16)]
    by_pod = eventually(
        lambda: [[answering(pod, session) for session in sessions] for pod in pods], what="every replica answers"
    )
    assert by_pod[0] == by_pod[1]
    assert set(by_pod[0]) == versions
    changed = {"spec": {"aliases": [{"name": "ab", "targets": [{"adapter": "two"}]}]}}
    world.api.merge(KIND, "server", changed, namespace=world.namespace)
    eventually(
        lambda: (
            {answering(pod, session) for pod in pods for session in sessions}
            == {versioned_name("two", second["digest"])}
        ),
        what="one target answers",
    )


def test_selected_job_is_served_under_its_name_unless_an_alias_has_it(world: World, kubelet: Kubelet) -> None:
    labels = {"serve": "here"}
    serve(
        world,
        adapterSelector={"matchLabels": labels},
        aliases=[{"name": "taken", "targets": [{"adapter": BASE}]}],
    )
    [pod] = kubelet.running(1)

    def train(name: str, source: Object | None) -> None:
        """Create a job with the labels; let it publish."""
        spec = {**TRAINING_SPEC, "output": {"adapter": {"uri": f"pvc://adapters/{name}"}}}
        metadata = {"name": name, "labels": labels}
        job = {"apiVersion": API_VERSION, "kind": "LoRATrainingJob", "metadata": metadata, "spec": spec}
        world.api.create(job, namespace=world.namespace)
        stage = world.wait_job(name, "prepare")
        if source is not None:
            world.end_well(stage, dataset=DATASET)
            world.end_well(world.wait_job(name, "train"), adapter={**ADAPTER, **source}, metrics={})

    first, second = kubelet.claims.publish("one"), kubelet.claims.publish("taken", alpha=80)
    train("unpublished", None)
    train("one", first)
    wait_effective(world, first["digest"], replicas=1)
    world.wait_reason(KIND, "server", "AllLoaded", condition="AdaptersLoaded")
    assert [one["name"] for one in adapters(world)] == ["one"]
    train("taken", second)
    told = world.wait_reason(KIND, "server", "NameConflict", condition="AdaptersLoaded")
    assert "LoRATrainingJob taken has the name of spec.aliases[taken]" in told["message"]
    assert list(pod.engine.adapters) == [versioned_name("one", first["digest"])]
    world.wait_reason(KIND, "server", "Serving")
    world.api.delete("LoRATrainingJob", "one", namespace=world.namespace)
    eventually(lambda: not pod.engine.adapters, what="the adapter is gone with its job")


def test_default_sampling_reaches_the_engine_and_changes_without_a_restart(world: World, kubelet: Kubelet) -> None:
    model = {**SERVER_SPEC["model"], "defaultSampling": {"temperature": "0.7", "topP": "0.9", "maxTokens": 32}}
    serve(world, model=model)
    [pod] = kubelet.running(1)

    def asked(**body: Any) -> Object:
        """Return what the engine got for a request."""
        httpx.post(f"{pod.url}/v1/completions", json={"prompt": "x", "model": BASE, **body}, trust_env=False)
        got: Object = [body for _, path, body in pod.engine.calls if path == "/v1/completions"][-1]
        return {name: got.get(name) for name in ("temperature", "top_p", "max_tokens")}

    assert asked() == {"temperature": 0.7, "top_p": 0.9, "max_tokens": 32}
    assert asked(temperature=0, max_tokens=5) == {"temperature": 0, "top_p": 0.9, "max_tokens": 5}
    fewer = {"spec": {"model": {"defaultSampling": {"topP": None, "maxTokens": 64}}}}
    world.api.merge(KIND, "server", fewer, namespace=world.namespace)
    expected = {"temperature": 0.7, "top_p": None, "max_tokens": 64}
    eventually(lambda: asked() == expected, what="the new defaults")
    assert kubelet.running(1) == [pod]


def test_at_rest_the_api_server_hears_nothing(
    world: World, kubelet: Kubelet, operators_requests: Callable[[], list[str]]
) -> None:
    source = kubelet.claims.publish("a")
    serve(world, replicas=2, adapters=[{"name": "tuned", "source": source}])
    world.train()
    training = eventually(lambda: world.pods(world.wait_job("train", "prepare")), what="a pod")[0]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}
    world.set_pod_status(training, {"phase": "Running", "startTime": TIME, "conditions": [ready]})
    wait_effective(world, source["digest"], replicas=2)
    world.wait_reason(KIND, "server", "Serving")
    engine = kubelet.running(2)[0].engine

    def looks() -> int:
        return len([path for _, path, _ in engine.calls if path == "/v1/models"])

    def nothing_asked() -> bool:
        """Whether nothing is asked while a sidecar looks at its engine twice, which is longer than any poll."""
        before, seen = len(operators_requests()), looks()
        eventually(lambda: looks() >= seen + 2, what="two comparisons")
        asked = operators_requests()[before:]
        assert not asked, f"{asked}"
        return True

    eventually(nothing_asked, what="rest")


def test_namespaces_are_walls(world: World, other: World, operator_of_both: OperatorProcess, tmp_path: Path) -> None:
    operator = operator_of_both
    with Kubelet(world, operator, tmp_path / "a") as first, Kubelet(other, operator, tmp_path / "b") as second:
        for one in (world, other):
            one.claims()
            serve(one, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
        other.train(baseModel={"modelServerRef": {"name": "server"}})
        source = second.claims.publish("a")
        other.end_well(other.wait_job("train", "prepare"), dataset=DATASET)
        other.end_well(other.wait_job("train", "train"), adapter={**ADAPTER, **source}, metrics={})
        wait_effective(other, source["digest"], replicas=1)
        [ours], [theirs] = first.running(1), second.running(1)
        assert theirs.loads() == [versioned_name("tuned", source["digest"])]
        world.wait_reason(KIND, "server", "ReferenceNotFound", condition="AdaptersLoaded")
        assert ours.loads() == []
        other.api.delete(KIND, "server", namespace=other.namespace)
        eventually(lambda: not other.engine_pods(), what="the other server's pods are gone")
        world.wait_reason(KIND, "server", "Serving")
