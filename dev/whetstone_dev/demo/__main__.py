"""Runs the demo: cluster, images, charts, seed, the loop, table, summary, one chat completion through the alias."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from openai.types.chat import ChatCompletionSystemMessageParam, ChatCompletionUserMessageParam
from rich.console import Console

from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import DevError
from whetstone_dev.demo import plan
from whetstone_dev.demo.diagnose import diagnose
from whetstone_dev.demo.install import install
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.demo.report import print_table, seconds_between, summarize
from whetstone_dev.demo.watch import DemoError, Watch, is_true
from whetstone_dev.images import build_and_push, references_of
from whetstone_dev.node import REGISTRY_HOST
from whetstone_dev.places import BUILD, CHECKOUT
from whetstone_dev.progress import say, stage
from whetstone_dev.tasks.prompt import SYSTEM_PROMPT

KINDS = ("ModelServer", "LoRATrainingJob", "BenchmarkRun")
LOOP_SECONDS = 2400.0
SEED_SECONDS = 900.0
ALIAS_SECONDS = 120.0
TABLE_WIDTH = 120
DELETE_SECONDS = 300.0
QUESTION = "Create a file named hello.txt that holds the word whetstone."


def run_demo(*, small: bool = False, namespace: str = "whetstone-demo") -> int:
    """Run the demo; return the process's exit code.

    Args:
        small: 8 tasks and few training rows, as the tests use.
        namespace: Where the loop runs; emptied first.
    """
    begun = time.monotonic()
    seconds: dict[str, float | None] = {}
    with stage("Cluster"):
        start = time.monotonic()
        kubeconfig = _kubeconfig()
        seconds["cluster"] = round(time.monotonic() - start, 1)
    with stage("Images"):
        start = time.monotonic()
        images = _images()
        seconds["images"] = round(time.monotonic() - start, 1)
    kube = Kube.connect(kubeconfig)
    demo = Demo(kube, namespace=namespace, images=images, size=plan.SMALL if small else plan.FULL)
    try:
        demo.prepare(kubeconfig, seconds)
        summary = demo.loop(seconds)
        seconds["total"] = round(time.monotonic() - begun, 1)
        _tell(summary)
        demo.chat()
    except DevError as error:
        say(f"failed: {error}")
        diagnose(kube, namespace)
        return 1
    verdict = summary["comparison"]["verdict"]
    if verdict != "Better":
        say(f"The adapter is not shown to be better: the verdict is {verdict}.")
    # The small loop trains too little to promise a score.
    return 0 if small or verdict == "Better" else 1


class Demo:
    """One run of the demo.

    Args:
        kube: The cluster.
        namespace: Where it runs.
        images: Full image reference by name.
        size: How much to do.
    """

    def __init__(self, kube: Kube, *, namespace: str, images: dict[str, str], size: plan.Size) -> None:
        self._kube = kube
        self._namespace = namespace
        self._images = images
        self._size = size

    def prepare(self, kubeconfig: Path, seconds: dict[str, float | None]) -> None:
        """Empty the namespace, install the charts, fill the volumes."""
        with stage(f"Emptying namespace {self._namespace}"):
            self._empty()
        with stage("Installing the charts with helm"):
            start = time.monotonic()
            install(kubeconfig, images=self._images, served=[self._namespace])
            seconds["install"] = round(time.monotonic() - start, 1)
        with stage("Seeding model, training rows and tasks", expected="1 minute"):
            start = time.monotonic()
            self._seed()
            seconds["seed"] = round(time.monotonic() - start, 1)

    def loop(self, seconds: dict[str, float | None]) -> dict[str, Any]:
        """Apply all objects at once, follow them to their end, and return the summary.

        Raises:
            DemoError: One of them cannot go on.
        """
        for obj in self._manifests():
            if obj["kind"] in KINDS:
                self._kube.apply(obj, namespace=self._namespace)
        say("Applied examples/loop: all objects at once; each waits for what it refers to")
        watch = Watch(self._read)
        watch.until(_all_ready, what="the loop", seconds=LOOP_SECONDS)
        seconds["serve"] = watch.ready_after["ModelServer", plan.SERVER]
        candidate = self._one("BenchmarkRun", plan.CANDIDATE)
        if is_true(candidate, "GatePassed"):
            seconds["promote"] = round(watch.until(_promoted, what="the alias", seconds=ALIAS_SECONDS), 1)
        server, training = self._one("ModelServer", plan.SERVER), self._one("LoRATrainingJob", plan.TRAINING)
        baseline = self._one("BenchmarkRun", plan.BASELINE)
        seconds.update(_stage_seconds(server=server, training=training, baseline=baseline, candidate=candidate))
        return summarize(server=server, training=training, baseline=baseline, candidate=candidate, seconds=seconds)

    def chat(self) -> None:
        """Ask the promoted alias something with the OpenAI client."""
        client = self._kube.openai(namespace=self._namespace, service=plan.SERVER)
        raw = client.chat.completions.with_raw_response.create(
            model=plan.ALIAS,
            messages=[
                ChatCompletionSystemMessageParam(role="system", content=SYSTEM_PROMPT),
                ChatCompletionUserMessageParam(role="user", content=QUESTION),
            ],
            max_tokens=64,
            temperature=0,
        )
        answer = raw.parse().choices[0].message.content
        say(f"Chat with alias {plan.ALIAS}, answered by {raw.headers.get('x-whetstone-adapter')}:")
        print(f"    user: {QUESTION}")
        print("    assistant: " + (answer or "").replace("\n", "\n               "))

    def _empty(self) -> None:
        self._kube.delete("v1", "Namespace", name=self._namespace)
        deadline = time.monotonic() + DELETE_SECONDS
        while self._kube.get("v1", "Namespace", name=self._namespace) is not None:
            if time.monotonic() > deadline:
                raise DemoError(f"namespace {self._namespace} is still being deleted after {DELETE_SECONDS:.0f} s")
            time.sleep(1)
        self._kube.apply(plan.namespace(self._namespace))

    def _seed(self) -> None:
        for obj in self._manifests():
            if obj["kind"] == "PersistentVolumeClaim":
                self._kube.apply(obj, namespace=self._namespace)
        job = plan.seed_job(image=self._images["demo-seed"], task_image=self._images["task"], size=self._size)
        self._kube.apply(job, namespace=self._namespace)
        deadline = time.monotonic() + SEED_SECONDS
        while True:
            found = self._kube.get("batch/v1", "Job", name="seed", namespace=self._namespace)
            if is_true(found, "Complete"):
                return
            if is_true(found, "Failed") or time.monotonic() > deadline:
                raise DemoError("the seed Job did not complete; its pod's words follow")
            time.sleep(1)

    def _manifests(self) -> list[dict[str, Any]]:
        return plan.fit_to_cpu(plan.examples(), self._size)

    def _read(self) -> list[dict[str, Any]]:
        """Read the loop's own objects; others in the namespace are none of its business."""
        return [
            {**obj, "kind": kind}
            for kind in KINDS
            for obj in self._kube.list(WHETSTONE, kind, namespace=self._namespace)
            if obj["metadata"]["name"] in plan.NAMES
        ]

    def _one(self, kind: str, name: str) -> dict[str, Any]:
        found = self._kube.get(WHETSTONE, kind, name=name, namespace=self._namespace)
        if found is None:
            raise DemoError(f"{kind} {name} has vanished from namespace {self._namespace}")
        return found


def _all_ready(objects: list[dict[str, Any]]) -> bool:
    return len(objects) > len(KINDS) and all(is_true(obj, "Ready") for obj in objects)


def _promoted(objects: list[dict[str, Any]]) -> bool:
    aliases = [
        alias
        for obj in objects
        if obj["kind"] == "ModelServer"
        for alias in (obj.get("status") or {}).get("aliases") or []
    ]
    return any(alias["name"] == plan.ALIAS and alias["adapter"] == plan.ADAPTER for alias in aliases)


def _stage_seconds(
    *, server: dict[str, Any], training: dict[str, Any], baseline: dict[str, Any], candidate: dict[str, Any]
) -> dict[str, float | None]:
    adapters = server["status"].get("adapters") or [{}]
    return {
        "baseline": _duration(baseline),
        "train": _duration(training),
        "publishToEffective": seconds_between(
            training["status"]["adapter"].get("publishedAt"), adapters[0].get("effectiveSince")
        ),
        "candidate": _duration(candidate),
    }


def _duration(obj: dict[str, Any]) -> float | None:
    return seconds_between(obj["status"].get("startedAt"), obj["status"].get("finishedAt"))


def _tell(summary: dict[str, Any]) -> None:
    path = BUILD / "demo" / "summary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")
    console = Console()
    print_table(summary, console if console.is_terminal else Console(width=TABLE_WIDTH))
    say(f"The same in {path.relative_to(CHECKOUT)}")


def _kubeconfig() -> Path:
    """Return the user's own cluster, or else start the local one."""
    given = os.environ.get("KUBECONFIG")
    if given:
        return Path(given)
    Cluster().up()
    return BUILD / "kubeconfig"


def _images() -> dict[str, str]:
    """Return the references of all images, in the user's registry, or else built and pushed to the local one."""
    registry = os.environ.get("REGISTRY")
    if registry:
        return {name: reference.replace(REGISTRY_HOST, registry, 1) for name, reference in references_of().items()}
    return build_and_push()


if __name__ == "__main__":
    sys.exit(run_demo(small="--small" in sys.argv))
