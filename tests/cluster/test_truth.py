"""What each pod really holds, on real engines: adapters that lie are caught, and nothing that dies is taken for alive.

The outcome is read from the engines themselves, pod by pod; the status must then say the same.
"""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.numpy import load_file, save_file
from support.loop import READY_SECONDS, Seeded, pod_is_ready
from support.training import training_spec
from support.waiting import eventually
from whetstone_api.adapter_artifact import CONFIG_FILE, LINEAGE_FILE, PROBE_FILE, WEIGHTS_FILE
from whetstone_api.digests import versioned_name
from whetstone_api.vocabulary import ADAPTER_HEADER, TOKEN_HEADER
from whetstone_artifacts.folders import write_manifest
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import condition, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SERVER, TRAINING, GOOD = "truth", "truth-adapter", "good"
PROMPT = "Create a file named hello.txt that holds the word whetstone."
TRAIN_SECONDS = 420.0


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
        fitted = plan.fit_to_cpu(plan.examples(), plan.SMALL)
        spec = next(obj for obj in fitted if obj["kind"] == "ModelServer")["spec"]
        named = [{"name": name, "source": source} for name, source in adapters.items()]
        spec.pop("aliases", None)
        self.apply("ModelServer", SERVER, {**spec, "adapters": named, "drain": {"seconds": 20}, **fields})

    def engines(self) -> list[Engine]:
        """Return the engines of all pods that are not going away."""
        secret = self.kube.get("v1", "Secret", name=f"{SERVER}-token", namespace=self.namespace)
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
    eventually(lambda: is_true(seeded.get("LoRATrainingJob", TRAINING), "Ready"), what="trained", seconds=TRAIN_SECONDS)
    claim = seeded.kube.get("v1", "PersistentVolumeClaim", name="adapters", namespace=seeded.namespace)
    assert claim is not None
    volume = seeded.kube.get("v1", "PersistentVolume", name=claim["spec"]["volumeName"])
    assert volume is not None
    published = seeded.get("LoRATrainingJob", TRAINING)["status"]["adapter"]
    place = Truth(
        kube=seeded.kube,
        namespace=seeded.namespace,
        adapters=Path(volume["spec"]["hostPath"]["path"]),
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
    truth.wait_listed((GOOD, truth.source))


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
