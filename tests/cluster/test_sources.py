"""A server that fetches all it serves and asks for keys: model and adapter of a registry, adapter of a bucket."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.adapters import make_adapter, random_tensors
from support.loop import READY_SECONDS, Seeded, pod_is_ready, server_example
from support.store_servers import oci_registry, s3_server
from support.training import run_spec
from support.waiting import eventually
from whetstone_dev.cluster import Cluster
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
NAME, BASE = "fetched", "base"
FETCH_SECONDS = 120.0
RUN_SECONDS = 300.0
RANK = 4
KEYS = {"platform": "sk-platform-1", "team": "sk-team-1"}


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The server, Ready.

    Args:
        seeded: Its namespace.
        before: What its condition Ready said while its model did not exist.
    """

    seeded: Seeded
    before: dict[str, Any]

    def ask(self, model: str, *, key: str | None) -> httpx.Response:
        """Send a request to the server's Service as a client in the cluster does."""
        service = self.seeded.kube.get("v1", "Service", name=NAME, namespace=self.seeded.namespace)
        assert service is not None
        url = f"http://{service['spec']['clusterIP']}/v1/completions"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Several tokens: the adapters change queries only, and over a single token attention has no choice.
        body = {"model": model, "prompt": "List the files of", "max_tokens": 1, "temperature": 0, "logprobs": 1}
        return httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)

    def answer(self, model: str) -> str:
        """Return the version that answers, and with which probability of its first token."""
        response = self.ask(model, key=KEYS["platform"])
        assert response.status_code == 200, response.text
        [probability] = response.json()["choices"][0]["logprobs"]["token_logprobs"]
        return f"{response.headers['x-whetstone-adapter']} {probability}"


def trained_elsewhere(folder: Path, model: Path, *, seed: int) -> str:
    """Write an adapter without a probe that fits a model; return its digest."""
    config = json.loads((model / "config.json").read_text())
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    tensors = random_tensors(rank=RANK, layers=layers, hidden=hidden, seed=seed)
    return make_adapter(folder, config={"r": RANK, "lora_alpha": 2 * RANK}, tensors=tensors)


def secret(name: str, data: dict[str, str]) -> dict[str, Any]:
    """Return a Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def server_spec(model: str, adapters: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the server's spec with its base model at a URI."""
    example = server_example()
    source = {"uri": model, "secretRef": {"name": "registry"}}
    return {
        "engine": example["engine"],
        "resources": example["resources"],
        "model": {"source": source, "servedName": BASE, "cache": {"claimName": "cache"}},
        "adapterStores": [{"name": name, "secretRef": {"name": name}} for name in ("registry", "bucket")],
        "adapters": adapters,
        "adapterCapacity": {"maxLoras": 2, "maxRank": 8},
        "apiKeys": [
            {"name": "platform", "secretRef": {"name": "keys", "key": "platform"}},
            {"name": "team", "secretRef": {"name": "keys", "key": "team"}, "models": ["from-bucket"]},
        ],
        "drain": {"seconds": 5},
    }


@pytest.fixture(scope="module")
def fetched(seeded: Seeded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetched]:
    """The server, after its model has been looked for in vain; removed afterwards with all it needed."""
    folder, host = tmp_path_factory.mktemp("sources"), Cluster().ranges.host()
    model = seeded.host_folder("models") / plan.MODEL
    digests = {name: trained_elsewhere(folder / name, model, seed=seed) for seed, name in enumerate(("oci", "s3"))}
    claim: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    with oci_registry(folder, host=host) as registry, s3_server(folder, host=host) as bucket:
        bucket.upload(folder / "s3", "adapters/one")
        uri = registry.push(model, "tests/model")
        adapters = [
            adapter("from-registry", registry.push(folder / "oci", "tests/adapter"), "registry", digests["oci"]),
            adapter("from-bucket", "s3://adapters/one", "bucket", digests["s3"]),
        ]
        needed = [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "cache"}, "spec": claim},
            secret("registry", registry.keys),
            secret("bucket", bucket.keys),
            secret("keys", KEYS),
        ]
        for obj in needed:
            seeded.kube.apply(obj, namespace=seeded.namespace)
        seeded.apply("ModelServer", NAME, server_spec(uri.replace("@sha256:", "/none@sha256:"), adapters))
        before = eventually(lambda: refused(seeded), what="the missing model is told", seconds=FETCH_SECONDS)
        seeded.apply("ModelServer", NAME, server_spec(uri, adapters))
        eventually(lambda: is_true(seeded.get("ModelServer", NAME), "Ready"), what="Ready", seconds=READY_SECONDS)
        yield Fetched(seeded=seeded, before=before)
        seeded.delete("ModelServer", NAME)
        eventually(lambda: not seeded.pods("model-server", NAME), what="pods of the server gone", seconds=150)
        for obj in needed:
            seeded.kube.delete("v1", obj["kind"], name=obj["metadata"]["name"], namespace=seeded.namespace)


def adapter(name: str, uri: str, secret_name: str, digest: str) -> dict[str, Any]:
    """Return an entry of spec.adapters."""
    return {"name": name, "source": {"uri": uri, "digest": digest, "secretRef": {"name": secret_name}}}


def refused(seeded: Seeded) -> dict[str, Any] | None:
    """Return the condition Ready once it says that the model does not exist."""
    found = condition(seeded.get("ModelServer", NAME), "Ready")
    return found if found and found["reason"] == "SourceNotFound" else None


def test_model_that_does_not_exist_is_told_until_the_uri_is_mended(fetched: Fetched) -> None:
    assert fetched.before["message"].startswith("spec.model.source.uri oci://")


def test_adapters_of_registry_and_bucket_answer_each_in_its_own_way(fetched: Fetched) -> None:
    names = (BASE, "from-registry", "from-bucket")
    answers = [eventually(lambda name=name: fetched.answer(name), what=f"{name} answers") for name in names]
    assert len({answer.split()[1] for answer in answers}) == len(names)
    assert [answer.split("--")[0] for answer in answers[1:]] == list(names[1:])


def test_clients_need_a_key_that_may_call_the_model(fetched: Fetched) -> None:
    team = KEYS["team"]
    cases = [(None, BASE), ("sk-wrong", BASE), (team, BASE), (team, "from-registry"), (team, "from-bucket")]
    assert [fetched.ask(model, key=key).status_code for key, model in cases] == [401, 401, 403, 403, 200]


def test_benchmark_needs_no_key_of_the_users(fetched: Fetched) -> None:
    agent = {"name": "whetstone", "parameters": {"maxTurns": 1, "maxTokens": 8}}
    target = {"modelServerRef": {"name": NAME}, "adapter": "from-registry"}
    suite = run_spec(output="keyed")["suite"]
    suite["harbor"]["tasks"] = {"limit": 2}
    seeded = fetched.seeded
    seeded.apply("BenchmarkRun", "keyed", run_spec(output="keyed", agent=agent, target=target, suite=suite))
    run = seeded.ended_well("BenchmarkRun", "keyed", seconds=RUN_SECONDS)
    seeded.delete("BenchmarkRun", "keyed")
    assert (run["status"]["results"]["trials"], run["status"]["results"]["void"]) == (2, 0)


def test_replacement_pod_finds_the_model_in_the_claim(fetched: Fetched) -> None:
    seeded = fetched.seeded
    first = seeded.pods("model-server", NAME)[-1]
    [model] = [path for path in seeded.host_folder("cache").iterdir() if path.is_dir()]
    written = (model / "config.json").stat().st_mtime_ns
    seeded.kube.delete("v1", "Pod", name=first["metadata"]["name"], namespace=seeded.namespace)

    def replaced() -> bool:
        pods = seeded.pods("model-server", NAME)
        return any(pod["metadata"]["uid"] != first["metadata"]["uid"] and pod_is_ready(pod) for pod in pods)

    eventually(replaced, what="another pod Ready", seconds=READY_SECONDS)
    assert (model / "config.json").stat().st_mtime_ns == written
