"""`adapterCapacity: Auto` on the node: the real engine takes an adapter for which it had no room at first."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from support.adapters import make_adapter, random_tensors
from support.loop import READY_SECONDS, Seeded, server_example
from support.waiting import eventually
from whetstone_api.vocabulary import ADAPTER_HEADER

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SERVER = "roomy"
LAYERS, WIDTH = 30, 576
"""Of SmolLM2-135M."""


@pytest.fixture
def place(seeded: Seeded) -> Iterator[Seeded]:
    """A place for a server called `roomy`, removed afterwards."""
    yield seeded
    seeded.delete("ModelServer", SERVER)
    eventually(lambda: not seeded.pods("model-server", SERVER), what="its pods gone", seconds=150)


def apply(place: Seeded, adapters: list[dict[str, Any]]) -> None:
    """Apply the server with some adapters."""
    spec = server_example()
    spec.pop("aliases")
    spec["adapterCapacity"] = {
        "maxLoras": "Auto",
        "maxRank": "Auto",
        "maxCpuLoras": 1,
        "headroom": {"loras": 0, "rank": 8},
    }
    place.apply("ModelServer", SERVER, {**spec, "adapters": adapters})


def publish(folder: Path, name: str, rank: int) -> dict[str, Any]:
    """Publish an adapter with random weights; return it as the spec names it."""
    tensors = random_tensors(rank=rank, layers=LAYERS, hidden=WIDTH, seed=rank)
    digest = make_adapter(folder / name, config={"r": rank, "lora_alpha": rank}, tensors=tensors)
    for file in (folder / name).iterdir():
        file.chmod(0o644)  # safetensors keeps its files to their owner, who is root here
    return {"name": name, "source": {"uri": f"pvc://adapters/{name}", "digest": digest}}


def wait_effective(place: Seeded, *names: str) -> dict[str, Any]:
    """Wait until the adapters are effective and the server Ready; return the server."""

    def found() -> dict[str, Any] | None:
        server = place.get("ModelServer", SERVER)
        status = server.get("status", {})
        states = {one["name"]: one for one in status.get("adapters", [])}
        ready = next((one for one in status.get("conditions", []) if one["type"] == "Ready"), {})
        assert [name for name in names if states.get(name, {}).get("effectiveReplicas") == 1] == list(names), (
            f"{status}"
        )
        assert ready.get("status") == "True", f"{ready}"
        return server

    return eventually(found, what=f"{names} effective", seconds=READY_SECONDS)


def ask(place: Seeded, model: str) -> tuple[int, str | None]:
    """Ask a model for one token; return the HTTP status and the version that answered."""
    client: openai.OpenAI = place.kube.openai(namespace=place.namespace, service=SERVER)
    raw = client.completions.with_raw_response.create(model=model, prompt="ls", max_tokens=1, temperature=0)
    return raw.status_code, raw.headers.get(ADAPTER_HEADER)


def test_real_engine_takes_a_higher_rank_after_auto_has_raised_it(place: Seeded) -> None:
    apply(place, [])
    folder = place.host_folder("adapters")
    low, high = publish(folder, "low", 8), publish(folder, "high", 32)
    apply(place, [low])
    server = wait_effective(place, "low")
    assert (server["status"]["capacity"]["maxRank"], server["status"]["capacity"]["maxLoras"]) == (8, 1)
    before = {pod["metadata"]["uid"] for pod in place.pods("model-server", SERVER)}
    apply(place, [low, high])
    server = wait_effective(place, "low", "high")
    assert server["status"]["capacity"]["maxRank"] == 32
    [pod] = [pod for pod in place.pods("model-server", SERVER) if "deletionTimestamp" not in pod["metadata"]]
    assert pod["metadata"]["uid"] not in before
    # One of the two at a time is in the engine's memory; the other is read from disk when it is asked.
    for name in ("high", "low", "high"):
        status, version = ask(place, name)
        assert status == 200
        assert version is not None
        assert version.startswith(f"{name}--")
