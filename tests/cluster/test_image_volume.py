"""An engine on the node serves a model that lies in an image, which the node mounts and no pod fetches."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.loop import READY_SECONDS, Seeded, server_example
from support.waiting import eventually
from whetstone_dev.commands import run
from whetstone_dev.demo import plan
from whetstone_dev.demo.watch import is_true
from whetstone_dev.images import local_registry

pytestmark = [pytest.mark.cluster, pytest.mark.long]
NAME, FOLDER = "from-image", "models"


def push_model_image(model: Path, folder: Path) -> str:
    """Push an image with nothing but a model in a folder; return its uri."""
    registry = local_registry()
    container = run(["buildah", "from", "scratch"]).strip()
    digest = folder / "digest"
    try:
        run(["buildah", "copy", container, model, f"/{FOLDER}"])
        image = run(["buildah", "commit", "--quiet", container]).strip()
    finally:
        run(["buildah", "rm", container])
    try:
        place = f"{registry.address}/tests/model-image:1"
        run(["buildah", "push", "--tls-verify=false", "--digestfile", digest, image, place])
    finally:
        run(["buildah", "rmi", image])
    return f"oci://{registry.name}/tests/model-image@{digest.read_text().strip()}"


@pytest.fixture
def server(seeded: Seeded, tmp_path: Path) -> Iterator[Seeded]:
    """A server whose model is an image, Ready."""
    uri = push_model_image(seeded.host_folder("models") / plan.MODEL, tmp_path)
    example = server_example()
    spec = {name: example[name] for name in ("engine", "resources")}
    spec["model"] = {"source": {"uri": uri}, "imageVolume": {"subPath": FOLDER}, "servedName": "base"}
    seeded.apply("ModelServer", NAME, spec)
    eventually(lambda: is_true(seeded.get("ModelServer", NAME), "Ready"), what="Ready", seconds=READY_SECONDS)
    yield seeded
    seeded.delete("ModelServer", NAME)
    eventually(lambda: not seeded.pods("model-server", NAME), what="its pods gone", seconds=150)


def test_engine_answers_with_the_model_of_the_image(server: Seeded) -> None:
    client = server.kube.openai(namespace=server.namespace, service=NAME)
    answer = client.completions.create(model="base", prompt="The capital of France is", max_tokens=4, temperature=0)
    assert "Paris" in answer.choices[0].text
    [pod] = server.pods("model-server", NAME)
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["guard"]
    assert [one["image"]["reference"] for one in pod["spec"]["volumes"] if "image" in one]
