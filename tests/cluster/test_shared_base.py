"""`examples/phase-adapters` and `examples/toolshim` on the node: several adapters and aliases on one real engine.

Structure only: which version answered. So small a model, trained for two steps, says nothing worth reading.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from openai import BadRequestError
from support.data_rows import LS
from support.loop import READY_SECONDS, Seeded
from support.waiting import eventually
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo import plan
from whetstone_dev.places import CHECKOUT

pytestmark = [pytest.mark.cluster, pytest.mark.long]
TRAINING_SECONDS = 600.0
VERSION_HEADER = "x-whetstone-adapter"


def fitted(folder: str, image: str) -> list[dict[str, Any]]:
    """Return the objects of an example as kubectl renders them, for this machine and with two steps to train."""
    command = [Cluster().plane.kubectl, "kustomize", CHECKOUT / "examples" / folder]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    ours = plan.fit_to_cpu([one for one in objects if one["apiVersion"].startswith("whetstone")], plan.SMALL)
    others = [one for one in objects if not one["apiVersion"].startswith("whetstone")]
    for obj in ours:
        if obj["kind"] == "LoRATrainingJob":
            del obj["spec"]["hyperparameters"]["epochs"]
            obj["spec"]["hyperparameters"] |= {"maxSteps": 2, "batchSize": 2, "maxLength": 512}
    for obj in others:
        if obj["kind"] == "Deployment":
            obj["spec"]["replicas"] = 1
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            container["image"] = image
            # What an adapter of two steps writes has no end of its own.
            container["env"].append({"name": "SHIM_TOKENS", "value": "8"})
    return [*others, *ours]


@pytest.fixture
def example(request: pytest.FixtureRequest, seeded: Seeded, images: dict[str, str]) -> Iterator[Seeded]:
    """An example, applied at once, with its adapters trained and its program ready; removed afterwards."""
    objects = fitted(request.param, images["benchmark"])
    for obj in objects:
        seeded.kube.apply(obj, namespace=seeded.namespace)
    named = {kind: [one for one in objects if one["kind"] == kind] for kind in ("LoRATrainingJob", "Deployment")}
    for job in named["LoRATrainingJob"]:
        seeded.ended_well("LoRATrainingJob", job["metadata"]["name"], seconds=TRAINING_SECONDS)
    (program,) = named["Deployment"]
    eventually(lambda: is_available(seeded, program["metadata"]["name"]), what="the program", seconds=READY_SECONDS)
    yield seeded
    (server,) = (one["metadata"]["name"] for one in objects if one["kind"] == "ModelServer")
    for obj in objects:
        seeded.kube.delete(obj["apiVersion"], obj["kind"], name=obj["metadata"]["name"], namespace=seeded.namespace)
    eventually(lambda: not seeded.pods("model-server", server), what="the server is gone", seconds=READY_SECONDS)


def is_available(seeded: Seeded, name: str) -> bool:
    found = seeded.kube.get("apps/v1", "Deployment", name=name, namespace=seeded.namespace)
    return bool(found and found.get("status", {}).get("availableReplicas"))


def version(seeded: Seeded, server: str, adapter: str) -> str:
    """Wait until an adapter is effective, and return the name of its version."""
    digest = seeded.get("LoRATrainingJob", adapter)["status"]["adapter"]["digest"]
    expected = f"{adapter}--{digest.removeprefix('sha256:')[:8]}"

    def is_effective() -> bool:
        found = seeded.get("ModelServer", server)["status"].get("adapters") or []
        return any((one.get("servedName"), one.get("effectiveReplicas")) == (expected, 1) for one in found)

    eventually(is_effective, what=f"{expected} is effective", seconds=READY_SECONDS)
    return expected


@pytest.mark.parametrize("example", ["phase-adapters"], indirect=True)
def test_the_phases_own_adapter_answers(example: Seeded) -> None:
    planner, worker = (version(example, "phases", name) for name in ("planner", "worker"))
    assert planner != worker
    client = example.kube.openai(namespace=example.namespace, service="phase-router")

    def answered_by(**headers: str) -> str | None:
        answer = client.chat.completions.with_raw_response.create(
            model="agent",
            messages=[{"role": "user", "content": "Job: count the files."}],
            max_tokens=4,
            extra_headers=headers,
        )
        found: str | None = answer.headers.get(VERSION_HEADER)
        return found

    assert answered_by(**{"X-Phase": "strategic"}) == planner
    assert answered_by(**{"X-Phase": "tactical"}) == worker
    assert answered_by() == worker
    with pytest.raises(BadRequestError, match="use one of strategic, tactical"):
        answered_by(**{"X-Phase": "dreaming"})


@pytest.mark.parametrize("example", ["toolshim"], indirect=True)
def test_the_base_model_thinks_and_the_adapter_writes_the_calls(example: Seeded) -> None:
    calls = version(example, "thinker", "calls")
    client = example.kube.openai(namespace=example.namespace, service="toolshim")
    asked: dict[str, Any] = {
        "model": "agent",
        "messages": [{"role": "user", "content": "What is in /tmp?"}],
        "max_tokens": 8,
    }
    answer = client.chat.completions.with_raw_response.create(**asked, tools=[LS])
    assert answer.headers.get(VERSION_HEADER) == f"{plan.MODEL}, {calls}"
    [choice] = json.loads(answer.text)["choices"]
    assert choice["message"]["content"]
    plain = client.chat.completions.with_raw_response.create(**asked)
    assert plain.headers.get(VERSION_HEADER) == plan.MODEL
