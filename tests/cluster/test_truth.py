"""What each pod really holds, on real engines: adapters that lie are caught, and nothing that dies is taken for alive.

The outcome is read from the engines themselves, pod by pod; the status must then say the same.
"""

import base64
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.numpy import load_file, save_file
from support.loop import READY_SECONDS, Seeded, pod_is_ready, server_example
from support.node import kill, processes
from support.training import training_spec
from support.waiting import eventually
from whetstone_api.adapter_artifact import CONFIG_FILE, LINEAGE_FILE, PROBE_FILE, WEIGHTS_FILE
from whetstone_api.digests import versioned_name
from whetstone_api.vocabulary import ADAPTER_HEADER, TOKEN_HEADER
from whetstone_artifacts.folders import write_manifest
from whetstone_dev.demo import plan
from whetstone_dev.demo.install import SYSTEM_NAMESPACE
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SERVER, TRAINING, GOOD = "truth", "truth-adapter", "good"
PROMPT = "Create a file named hello.txt that holds the word whetstone."
TRAIN_SECONDS = 420.0
STALL_SECONDS = 300.0
"""From the hang of an engine to its container's start: the sidecar's patience, the kubelet's, and the kill."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One pod's engine, asked past the guard.

    Args:
        pod: The pod as last read.
        token: The operator's token.
    """

    pod: dict[str, Any]
    token: str

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Send a request with the operator's token."""
        url = f"http://{self.pod['status']['podIP']}:8000{path}"
        try:
            return httpx.request(
                method, url, json=body, headers={TOKEN_HEADER: self.token}, trust_env=False, timeout=60
            )
        except httpx.TransportError as error:
            raise AssertionError(f"{url}: {error!r}") from error

    def adapters(self) -> list[str]:
        """Return the adapters that the engine lists."""
        answer = self.send("GET", "/v1/models")
        assert answer.status_code == 200, answer.text
        cards = answer.json()["data"]
        return sorted(card["id"] for card in cards if card.get("parent"))

    def says(self, model: str) -> str:
        """Return what a model of the engine answers, greedily."""
        messages = [{"role": "user", "content": PROMPT}]
        body = {"model": model, "messages": messages, "max_tokens": 12, "temperature": 0}
        answer = self.send("POST", "/v1/chat/completions", body)
        return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])


@dataclass(frozen=True, kw_only=True)
class Truth(Seeded):
    """The server of these tests.

    Args:
        adapters: Folder of the claim `adapters` on this machine.
        source: The trained adapter.
    """

    adapters: Path
    source: dict[str, str]

    def serve(self, adapters: dict[str, dict[str, str]], **fields: Any) -> None:
        """Apply the server with these adapters, by name."""
        spec = server_example()
        named = [{"name": name, "source": source} for name, source in adapters.items()]
        spec.pop("aliases", None)
        self.apply("ModelServer", SERVER, {**spec, "adapters": named, "drain": {"seconds": 20}, **fields})

    def engines(self) -> list[Engine]:
        """Return the engines of all pods that are not going away."""
        secret = self.kube.get("v1", "Secret", name=f"{SERVER}-access", namespace=self.namespace)
        assert secret is not None
        token = base64.b64decode(secret["data"]["token"]).decode()
        pods = [pod for pod in self.pods("model-server", SERVER) if not pod["metadata"].get("deletionTimestamp")]
        return [Engine(pod=pod, token=token) for pod in pods]

    def ready(self, number: int = 1) -> list[Engine]:
        """Wait until so many pods are Ready and no others are there."""

        def found() -> list[Engine] | None:
            engines = self.engines()
            ready = [pod_is_ready(engine.pod) for engine in engines]
            assert ready == [True] * number, f"{ready}"
            return engines

        return eventually(found, what=f"{number} pods Ready", seconds=READY_SECONDS)

    def status(self, adapter: str) -> dict[str, Any]:
        """Return the status of an adapter; empty while there is none."""
        adapters = self.get("ModelServer", SERVER).get("status", {}).get("adapters") or []
        return next((item for item in adapters if item["name"] == adapter), {})

    def wait_status(self, adapter: str, **fields: Any) -> dict[str, Any]:
        """Wait until the status of an adapter has these fields."""

        def found() -> dict[str, Any]:
            status = self.status(adapter)
            assert {key: status.get(key) for key in fields} == fields, f"{status}"
            return status

        return eventually(found, what=f"{adapter}: {fields}", seconds=120)

    def wait_listed(self, *sources: tuple[str, dict[str, str]], number: int = 1) -> list[Engine]:
        """Wait until every engine lists exactly these adapters."""
        wanted = sorted(version(name, source) for name, source in sources)

        def found() -> list[Engine]:
            engines = self.engines()
            listed = [engine.adapters() for engine in engines]
            assert listed == [wanted] * number, f"{listed}"
            return engines

        return eventually(found, what=f"engines list {wanted}", seconds=120)

    def ask(self, model: str) -> tuple[int, str | None]:
        """Ask as a client; return the HTTP status and the version that answered."""
        [engine] = self.engines()
        url = f"http://{engine.pod['status']['podIP']}:8000/v1/completions"
        answer = httpx.post(url, json={"model": model, "prompt": "ls", "max_tokens": 1}, trust_env=False, timeout=60)
        return answer.status_code, answer.headers.get(ADAPTER_HEADER)

    def wait_answer(self) -> None:
        """Wait until clients get the good adapter: it is listed before it is probed."""
        expected = (200, version(GOOD, self.source))
        eventually(lambda: self.ask(GOOD) == expected, what=f"{expected} for {GOOD}", seconds=60)

    def variant(self, name: str, change: Callable[[Path], None]) -> dict[str, str]:
        """Publish a changed copy of the trained adapter; return its source."""
        folder = self.adapters / f"truth-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.adapters / "truth", folder)
        change(folder)
        for file in folder.iterdir():
            # The sidecar runs as another user.
            file.chmod(0o644)
        return {"uri": f"pvc://adapters/{folder.name}", "digest": write_manifest(folder).digest}


def version(name: str, source: dict[str, str]) -> str:
    """Return the served name of a version."""
    return versioned_name(name, source["digest"])


def edit(file: str, **fields: Any) -> Callable[[Path], None]:
    """Return a change of a JSON file's fields; a function gets the old value."""

    def change(folder: Path) -> None:
        document = json.loads((folder / file).read_text())
        for key, value in fields.items():
            document[key] = value(document[key]) if callable(value) else value
        (folder / file).write_text(json.dumps(document))

    return change


def rename_modules(folder: Path) -> None:
    """Name the modules as if the model were wrapped in another class: no full path matches, every suffix does."""
    tensors = load_file(folder / WEIGHTS_FILE)
    renamed = {name.replace(".model.layers.", ".language_model.layers."): value for name, value in tensors.items()}
    assert renamed.keys() != tensors.keys()
    save_file(renamed, folder / WEIGHTS_FILE)


def shrink(folder: Path) -> None:
    """Halve what the adapter adds, and forget what was recorded: other weights, trained elsewhere."""
    edit(CONFIG_FILE, lora_alpha=lambda alpha: alpha / 2)(folder)
    for name in (PROBE_FILE, LINEAGE_FILE):
        (folder / name).unlink()


@pytest.fixture(scope="module")
def truth(seeded: Seeded) -> Iterator[Truth]:
    """A server of one replica with one adapter that was really trained, for a few steps."""
    spec = training_spec(
        output="truth",
        dataset={"source": {"uri": "pvc://data/train.jsonl"}},
        hyperparameters={"maxSteps": 12, "batchSize": 4, "maxLength": 256, "learningRate": "0.001"},
    )
    seeded.apply("LoRATrainingJob", TRAINING, spec)
    published = seeded.ended_well("LoRATrainingJob", TRAINING, seconds=TRAIN_SECONDS)["status"]["adapter"]
    place = Truth(
        kube=seeded.kube,
        namespace=seeded.namespace,
        adapters=seeded.host_folder("adapters"),
        source={"uri": published["uri"], "digest": published["digest"]},
    )
    place.serve({GOOD: place.source})
    place.ready()
    yield place
    for kind, name in (("ModelServer", SERVER), ("LoRATrainingJob", TRAINING)):
        seeded.delete(kind, name)
    eventually(lambda: not seeded.pods("model-server", SERVER), what="the server's pods gone", seconds=150)


@pytest.fixture
def alone(truth: Truth) -> Iterator[Truth]:
    """The server, put back afterwards to the one good adapter."""
    yield truth
    truth.serve({GOOD: truth.source})
    truth.ready()
    truth.wait_answer()


def test_base_and_adapter_are_what_was_recorded_and_answer_differently(truth: Truth) -> None:
    [engine] = truth.wait_listed((GOOD, truth.source))
    truth.wait_status(GOOD, effectiveReplicas=1)
    server = truth.get("ModelServer", SERVER)
    assert (is_true(server, "BaseParity"), is_true(server, "AdapterEffective")) == (True, True)
    assert engine.says(version(GOOD, truth.source)) != engine.says(plan.MODEL)


@pytest.mark.parametrize(
    ("name", "change", "reason", "listed"),
    [
        ("unmatched", rename_modules, "NoEffect", True),
        ("scaled", edit(CONFIG_FILE, lora_alpha=lambda alpha: alpha * 1.2), "Divergent", True),
        (
            "other-base",
            edit(LINEAGE_FILE, base=lambda base: {**base, "fingerprint": "sha256:0"}),
            "BaseMismatch",
            False,
        ),
    ],
    ids=["modules that match nothing", "wrong scaling", "wrong base revision"],
)
def test_adapter_that_is_not_what_it_says_gets_no_clients_and_harms_no_other(
    alone: Truth, name: str, change: Callable[[Path], None], reason: str, listed: bool
) -> None:
    bad = alone.variant(name, change)
    alone.serve({GOOD: alone.source, "bad": bad})
    alone.wait_status("bad", reason=reason, effectiveReplicas=0)
    [engine] = alone.wait_listed((GOOD, alone.source), *([("bad", bad)] if listed else []))
    if reason == "NoEffect":
        assert engine.says(version("bad", bad)) == engine.says(plan.MODEL)
    assert alone.ask("bad")[0] == 503
    assert alone.ask(version("bad", bad))[0] == 503
    assert alone.ask(GOOD) == (200, version(GOOD, alone.source))
    effective = condition(alone.get("ModelServer", SERVER), "AdapterEffective")
    assert effective is not None
    assert (effective["status"], effective["reason"]) == ("False", reason)


def test_two_adapters_changed_at_once_and_a_name_with_new_weights(alone: Truth) -> None:
    halved = alone.variant("halved", shrink)
    alone.serve({GOOD: alone.source, "second": halved})
    alone.wait_listed((GOOD, alone.source), ("second", halved))
    alone.wait_status("second", effectiveReplicas=1)
    alone.serve({GOOD: halved, "second": alone.source})
    [engine] = alone.wait_listed((GOOD, halved), ("second", alone.source))
    alone.wait_status(GOOD, effectiveReplicas=1, digest=halved["digest"])
    alone.wait_status("second", effectiveReplicas=1, digest=alone.source["digest"])
    assert alone.ask(GOOD) == (200, version(GOOD, halved))
    assert alone.ask("second") == (200, version("second", alone.source))
    assert engine.pod["status"]["containerStatuses"][0]["restartCount"] == 0
    effective = condition(alone.get("ModelServer", SERVER), "AdapterEffective")
    assert effective is not None
    assert (effective["status"], effective["reason"]) == ("Unknown", "Changed")


def test_stream_ends_on_the_adapter_that_is_removed_meanwhile(alone: Truth) -> None:
    [engine] = alone.engines()
    url = f"http://{engine.pod['status']['podIP']}:8000/v1/completions"
    body = {"model": GOOD, "prompt": "ls", "max_tokens": 250, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url, json=body, trust_env=False, timeout=120) as stream:
        lines = stream.iter_lines()
        next(lines)
        alone.serve({})
        eventually(lambda: alone.ask(GOOD)[0] == 404, what="new requests are refused", seconds=60)
        assert engine.adapters() == [version(GOOD, alone.source)], "it is unloaded under a request"
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    alone.wait_listed()


def test_killed_sidecar_comes_back_without_a_touch_to_the_engine(truth: Truth) -> None:
    [engine] = truth.ready()
    truth.wait_answer()
    kill(engine.pod, "sidecar")
    restarts = {item["name"]: item["restartCount"] for item in engine.pod["status"]["containerStatuses"]}

    def restarted() -> bool:
        [one] = truth.engines()
        counts = {item["name"]: item["restartCount"] for item in one.pod["status"]["containerStatuses"]}
        return counts == {"sidecar": restarts["sidecar"] + 1, "engine": restarts["engine"]}

    eventually(restarted, what="the sidecar's container started again", seconds=60)
    truth.ready()
    [engine] = truth.wait_listed((GOOD, truth.source))
    assert truth.ask(GOOD) == (200, version(GOOD, truth.source))


def test_engine_that_does_not_compute_what_was_recorded_of_its_base_gets_no_clients(alone: Truth) -> None:
    def shift(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        fields = ("baseLogprobs", "adapterLogprobs")
        return [{**case, **{field: [value - 2 for value in case[field]] for field in fields}} for case in cases]

    other = alone.variant("other-record", edit(PROBE_FILE, cases=shift))
    alone.serve({"other": other})
    [engine] = alone.wait_listed(("other", other))
    alone.wait_status("other", effectiveReplicas=1)
    kill(engine.pod, "engine")
    eventually(lambda: _ready_reason(alone) == "BaseDivergent", what="BaseDivergent is told", seconds=READY_SECONDS)
    [engine] = alone.wait_listed(("other", other))
    assert not pod_is_ready(engine.pod)
    assert alone.ask(plan.MODEL)[0] == 503
    message = (condition(alone.get("ModelServer", SERVER), "Ready") or {})["message"]
    assert f"pod {engine.pod['metadata']['name']} gets no clients" in message
    alone.serve({GOOD: alone.source})
    alone.ready()
    assert alone.ask(plan.MODEL)[0] == 200


def test_engine_that_hangs_is_told_and_only_its_container_starts_again(truth: Truth) -> None:
    [engine] = truth.ready()
    before = engine.pod["metadata"]["uid"]
    restarts = {item["name"]: item["restartCount"] for item in engine.pod["status"]["containerStatuses"]}
    for pid in processes(engine.pod, "engine")[1:]:
        os.kill(pid, signal.SIGSTOP)
    assert engine.send("GET", "/health").status_code == 200
    eventually(lambda: not pod_is_ready(truth.engines()[0].pod), what="the pod is unready", seconds=STALL_SECONDS)
    eventually(lambda: _ready_reason(truth) == "EngineStalled", what="EngineStalled is told", seconds=30)

    def restarted() -> bool:
        [one] = truth.engines()
        counts = {item["name"]: item["restartCount"] for item in one.pod["status"]["containerStatuses"]}
        assert counts == {"engine": restarts["engine"] + 1, "sidecar": restarts["sidecar"]}
        return one.pod["metadata"]["uid"] == before

    eventually(restarted, what="only the engine's container started again", seconds=STALL_SECONDS)
    truth.ready()
    truth.wait_listed((GOOD, truth.source))
    assert truth.ask(GOOD) == (200, version(GOOD, truth.source))


def test_pod_that_comes_while_the_operator_is_down_holds_what_it_should(truth: Truth) -> None:
    [engine] = truth.ready()
    _scale_operator(truth, 0)
    try:
        truth.kube.delete("v1", "Pod", name=engine.pod["metadata"]["name"], namespace=truth.namespace)

        def replaced() -> bool:
            engines = truth.engines()
            return [one.pod["metadata"]["uid"] for one in engines] != [engine.pod["metadata"]["uid"]] and bool(engines)

        eventually(replaced, what="another pod", seconds=120)
        truth.ready()
        truth.wait_listed((GOOD, truth.source))
        assert truth.ask(GOOD) == (200, version(GOOD, truth.source))
    finally:
        _scale_operator(truth, 1)
    truth.wait_status(GOOD, effectiveReplicas=1)


def test_scaled_up_and_down_every_pod_holds_the_adapter(truth: Truth) -> None:
    for number in (2, 1):
        truth.serve({GOOD: truth.source}, replicas=number)
        truth.ready(number)
        truth.wait_listed((GOOD, truth.source), number=number)
        truth.wait_status(GOOD, loadedReplicas=number, effectiveReplicas=number)


def _ready_reason(truth: Truth) -> str:
    found = condition(truth.get("ModelServer", SERVER), "Ready")
    return str(found["reason"]) if found else ""


def _scale_operator(truth: Truth, number: int) -> None:
    name = "whetstone-operator"
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": number}}
    truth.kube.apply(patch, namespace=SYSTEM_NAMESPACE)

    def scaled() -> bool:
        deployment = truth.kube.get("apps/v1", "Deployment", name=name, namespace=SYSTEM_NAMESPACE)
        assert deployment is not None
        status = deployment["status"]
        return status.get("replicas", 0) == number == status.get("readyReplicas", 0)

    eventually(scaled, what=f"{number} operators", seconds=120)
