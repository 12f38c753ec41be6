"""`adapterCapacity: Auto` against a real API server: engines get the room that adapters need and seldom restart."""

from typing import Any

import pytest
from integration.api import Object
from integration.engine_pods import SERVER_SPEC, Kubelet, crashed_engine
from integration.operator_process import OperatorProcess
from integration.world import TIME, World
from support.waiting import eventually
from whetstone_api.digests import versioned_name

pytestmark = pytest.mark.integration
KIND = "ModelServer"
AUTO = {"maxLoras": "Auto", "maxRank": "Auto"}


def arguments(world: World) -> list[str]:
    """Return the arguments of the server's engines."""
    pod = world.get("Deployment", "server-engine")["spec"]["template"]["spec"]
    found: list[str] = next(one["args"] for one in pod["containers"] if one["name"] == "engine")
    return found


def wait_reserved(world: World, *, rank: int, loras: int) -> Object:
    """Wait until engines start with so much room, and the status says so; return what it says."""

    def found() -> Object | None:
        wanted = {f"--max-lora-rank={rank}", f"--max-loras={loras}"}
        assert wanted <= set(arguments(world)), f"{arguments(world)}"
        told: Object = world.get(KIND, "server")["status"].get("capacity", {})
        assert (told.get("maxRank"), told.get("maxLoras")) == (rank, loras), f"{told}"
        return told

    return eventually(found, what=f"room for {loras} adapters of rank {rank}")


def wait_effective(world: World, *names: str) -> list[Object]:
    """Wait until the adapters are effective on the one replica."""

    def found() -> list[Object] | None:
        status = world.get(KIND, "server")["status"].get("adapters", [])
        assert [one["name"] for one in status if one["effectiveReplicas"] == 1] == list(names), f"{status}"
        return list(status)

    return eventually(found, what=f"{names} effective")


def change(world: World, spec: dict[str, Any]) -> None:
    """Change the server's spec."""
    world.api.merge(KIND, "server", {"spec": spec}, namespace=world.namespace)


def test_engines_start_with_room_for_what_a_job_will_publish(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.train(lora={"rank": 48})
    world.serve(adapterCapacity=AUTO, adapters=[{"name": "tuned", "trainingJobRef": {"name": "train"}}])
    told = wait_reserved(world, rank=64, loras=5)
    assert told["message"] == "maxRank: adapter tuned has rank 48; maxLoras: adapters 1, headroom 4"
    assert told["maxCpuLoras"] == 64


def test_job_of_any_rank_may_train_on_a_server_that_follows(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapterCapacity=AUTO)
    world.train(baseModel={"modelServerRef": {"name": "server"}}, lora={"rank": 256})
    world.wait_job("train", "prepare")


def test_fixed_numbers_reach_the_engine_as_they_are(world: World, operator: OperatorProcess) -> None:
    world.claims()
    world.serve(adapterCapacity={"maxLoras": 2, "maxRank": 32, "maxCpuLoras": 3})
    told = wait_reserved(world, rank=32, loras=2)
    assert "--max-cpu-loras=3" in arguments(world)
    assert told == {"maxLoras": 2, "maxRank": 32, "maxCpuLoras": 3}


def test_adapter_of_a_higher_rank_restarts_engines_once_and_is_served(world: World, kubelet: Kubelet) -> None:
    low, high = kubelet.claims.publish("low", alpha=50), kubelet.claims.publish("high", alpha=80, rank=32)
    world.create(KIND, "server", {**SERVER_SPEC, "adapterCapacity": AUTO, "adapters": [{"name": "low", "source": low}]})
    wait_reserved(world, rank=16, loras=5)
    assert wait_effective(world, "low")[0]["rank"] == 4
    first = kubelet.running(1)[0]
    change(world, {"adapters": [{"name": "low", "source": low}, {"name": "high", "source": high}]})
    told = wait_reserved(world, rank=32, loras=5)
    assert told["message"].startswith("maxRank: adapter high has rank 32")
    assert wait_effective(world, "low", "high")[1]["rank"] == 32
    world.wait_events("CapacityRaised")
    events = world.api.list("Event", namespace=world.namespace)
    [raised] = [event for event in events if event["reason"] == "CapacityRaised"]
    assert "maxRank 16 -> 32, maxLoras 5 -> 5 (maxRank: adapter high has rank 32;" in raised["note"]
    assert first.loads() == [versioned_name("low", low["digest"])], "the engine that is too small was never asked"


def test_adapter_that_goes_restarts_nothing_but_its_room_goes_with_the_next_restart(
    world: World, kubelet: Kubelet
) -> None:
    low, high = kubelet.claims.publish("low", alpha=50), kubelet.claims.publish("high", alpha=80, rank=32)
    both = [{"name": "low", "source": low}, {"name": "high", "source": high}]
    world.create(KIND, "server", {**SERVER_SPEC, "adapterCapacity": AUTO, "adapters": both})
    wait_effective(world, "low", "high")
    wait_reserved(world, rank=32, loras=6)
    generation = world.get("Deployment", "server-engine")["metadata"]["generation"]
    change(world, {"adapters": both[:1]})
    wait_effective(world, "low")
    told = wait_reserved(world, rank=32, loras=6)
    assert told["message"] == "maxRank: the headroom is 16, kept at 32; maxLoras: adapters 1, headroom 4, kept at 6"
    assert world.get("Deployment", "server-engine")["metadata"]["generation"] == generation
    change(world, {"drain": {"seconds": 61}})
    wait_reserved(world, rank=16, loras=5)
    wait_effective(world, "low")


def test_server_without_pods_forgets_what_it_had_reserved(world: World, kubelet: Kubelet) -> None:
    high = kubelet.claims.publish("high", rank=32)
    adapters = [{"name": "high", "source": high}]
    world.create(KIND, "server", {**SERVER_SPEC, "adapterCapacity": AUTO, "adapters": adapters})
    wait_effective(world, "high")
    change(world, {"replicas": 0})
    world.wait_reason(KIND, "server", "ScaledToZero")
    wait_reserved(world, rank=32, loras=5)
    change(world, {"adapters": None})
    wait_reserved(world, rank=16, loras=4)


def test_explicit_bound_refuses_an_adapter_with_the_field_to_raise(world: World, kubelet: Kubelet) -> None:
    high = kubelet.claims.publish("high", rank=32)
    adapters = [{"name": "high", "source": high}]
    world.create(KIND, "server", {**SERVER_SPEC, "adapters": adapters})
    refused = world.wait_reason(KIND, "server", "RankTooHigh", condition="AdaptersLoaded")
    assert "raise spec.adapterCapacity.maxRank of the ModelServer (Auto does so by itself)" in refused["message"]


def test_status_estimates_the_memory_from_what_a_pod_reads(world: World, kubelet: Kubelet) -> None:
    world.create(KIND, "server", {**SERVER_SPEC, "adapterCapacity": {"maxLoras": 2, "maxRank": 8}})

    def told() -> Object | None:
        found: Object | None = world.get(KIND, "server")["status"].get("capacity", {}).get("memory")
        return found

    memory = eventually(told, what="the estimate")
    # The tests' model: 64 x 8 numbers, two layers of one key head of width 4, 1024 tokens, float32.
    assert memory["weights"] == "2.00Ki"
    assert memory["cachePerRequest"] == "64.00Ki"
    change(world, {"adapterCapacity": {"maxRank": 64}})
    eventually(lambda: told() not in (None, memory), what="another estimate")
    change(world, {"replicas": 0})
    world.wait_reason(KIND, "server", "ScaledToZero")
    assert told() is not None


def test_engine_without_memory_is_told_what_takes_it(world: World, kubelet: Kubelet) -> None:
    world.create(KIND, "server", SERVER_SPEC)
    world.wait_reason(KIND, "server", "Serving")
    [pod] = world.engine_pods()
    not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": TIME}
    world.set_pod_status(pod, {"conditions": [not_ready], "containerStatuses": [crashed_engine(137, "OOMKilled")]})
    failed = world.wait_reason(KIND, "server", "EngineFailed", condition="Stalled")
    assert "raise spec.resources.limits.memory" in failed["message"]
    assert "(estimated for each accelerator: weights 2.00Ki, adapters " in failed["message"]
