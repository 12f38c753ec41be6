"""Runs the demo: cluster, images, charts, seed, the loop, table, summary, one chat completion through the alias."""

import json
import shlex
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
from whetstone_dev.demo.down import delete_namespace
from whetstone_dev.demo.install import SYSTEM_NAMESPACE, install, upgrades
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.demo.obstacles import Patience, obstacle
from whetstone_dev.demo.preflight import check
from whetstone_dev.demo.report import print_table, seconds_between, summarize
from whetstone_dev.demo.target import Target, choose
from whetstone_dev.demo.watch import DemoError, Watch, is_true
from whetstone_dev.images import IMAGES, build_and_push, pushed, references_of
from whetstone_dev.places import BUILD, CHECKOUT
from whetstone_dev.progress import say, stage
from whetstone_dev.tasks.prompt import SYSTEM_PROMPT

KINDS = ("ModelServer", "LoRATrainingJob", "BenchmarkRun")
LOOP_SECONDS = 2400.0
SEED_SECONDS = 900.0
ALIAS_SECONDS = 120.0
TABLE_WIDTH = 120
QUESTION = "Create a file named hello.txt that holds the word whetstone."


def run_demo(
    *, small: bool = False, namespace: str = plan.NAMESPACE, target: Target | None = None, dry_run: bool = False
) -> int:
    """Run the demo; return the process's exit code.

    Args:
        small: 8 tasks and few training rows, as the tests use.
        namespace: Where the loop runs; emptied first.
        target: The cluster; None is the one that the environment names, or else the local one.
        dry_run: Only look at the cluster and say what would be done.
    """
    begun = time.monotonic()
    seconds: dict[str, float | None] = {}
    where, size = target or choose(), plan.SMALL if small else plan.FULL
    if dry_run:
        _announce(_foreign(where, namespace), where, namespace=namespace, size=size)
        return 0
    with stage("Cluster"):
        start = time.monotonic()
        kube = _foreign(where, namespace) or _local()
        seconds["cluster"] = round(time.monotonic() - start, 1)
    with stage("Images"):
        start = time.monotonic()
        images = build_and_push(registry=where.registry)
        seconds["images"] = round(time.monotonic() - start, 1)
    demo = Demo(kube, namespace=namespace, images=images, size=size, storage_class=where.storage_class)
    try:
        demo.prepare(where.kubeconfig, seconds)
        summary = demo.loop(seconds)
        seconds["total"] = round(time.monotonic() - begun, 1)
        _tell(summary)
        demo.chat()
    except DevError as error:
        say(f"failed: {error}")
        diagnose(kube, namespace)
        say(f"All of it is still in namespace {namespace}; `make demo-down` removes it.")
        return 1
    verdict = summary["comparison"]["verdict"]
    if verdict != "Better":
        say(f"The adapter is not shown to be better: the verdict is {verdict}.")
    say(f"All of it is still in namespace {namespace}; `make demo-down` removes it.")
    # The small loop trains too little to promise a score.
    return 0 if small or verdict == "Better" else 1


def _local() -> Kube:
    """Start the local cluster."""
    Cluster().up()
    return Kube.connect(Cluster().kubeconfig)


def _foreign(target: Target, namespace: str) -> Kube | None:
    """Look whether the demo can run on the user's cluster; None without one."""
    if target.registry is None:
        return None
    kube = Kube.connect(target.kubeconfig)
    storage_class = check(kube, target, namespace=namespace)
    pushed(target.registry, target.registry.reference(IMAGES[0]))
    say(f"cluster {kube.server}, registry {target.registry.name}, storage class {storage_class}")
    return kube


class Demo:
    """One run of the demo.

    Args:
        kube: The cluster.
        namespace: Where it runs.
        images: Full image reference by name.
        size: How much to do.
        storage_class: Class of the claims; None leaves it to the cluster.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        images: dict[str, str],
        size: plan.Size,
        storage_class: str | None = None,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._images = images
        self._size = size
        self._storage_class = storage_class

    def prepare(self, kubeconfig: Path, seconds: dict[str, float | None]) -> None:
        """Empty the namespace, fill the volumes, install the charts.

        Volumes come first: what keeps their pod from starting is told at once, and helm would wait for minutes.
        """
        with stage(f"Emptying namespace {self._namespace}"):
            self._empty()
        with stage("Seeding model, training rows and tasks", expected="1 minute"):
            start = time.monotonic()
            self._seed()
            seconds["seed"] = round(time.monotonic() - start, 1)
        with stage("Installing the charts with helm"):
            start = time.monotonic()
            self._install(kubeconfig)
            seconds["install"] = round(time.monotonic() - start, 1)

    def loop(self, seconds: dict[str, float | None]) -> dict[str, Any]:
        """Apply all objects at once, follow them to their end, and return the summary.

        Raises:
            DemoError: One of them cannot go on.
        """
        for obj in self._manifests():
            if obj["kind"] in KINDS:
                self._kube.apply(obj, namespace=self._namespace)
        say("Applied examples/loop: all objects at once; each waits for what it refers to")
        watch = Watch(self._read, check=Patience(self._kube, self._namespace).check)
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
        # On a cluster of the user's, somebody else's namespace of that name has been refused before.
        delete_namespace(self._kube, self._namespace, any_owner=True)
        self._kube.apply(plan.namespace(self._namespace))

    def _install(self, kubeconfig: Path) -> None:
        try:
            install(kubeconfig, images=self._images, served=[self._namespace])
        except DevError as error:
            known = obstacle(self._kube, SYSTEM_NAMESPACE)
            if known is None:
                raise
            raise DemoError(known) from error

    def _seed(self) -> None:
        for obj in self._manifests():
            if obj["kind"] == "PersistentVolumeClaim":
                self._kube.apply(obj, namespace=self._namespace)
        job = plan.seed_job(image=self._images["demo-seed"], task_image=self._images["task"], size=self._size)
        self._kube.apply(job, namespace=self._namespace)
        deadline = time.monotonic() + SEED_SECONDS
        patience = Patience(self._kube, self._namespace)
        while True:
            found = self._kube.get("batch/v1", "Job", name="seed", namespace=self._namespace)
            if is_true(found, "Complete"):
                return
            if is_true(found, "Failed") or time.monotonic() > deadline:
                raise DemoError("the seed Job did not complete; its pod's words follow")
            patience.check()
            time.sleep(1)

    def _manifests(self) -> list[dict[str, Any]]:
        return plan.fit_to_cpu(plan.examples(), self._size, storage_class=self._storage_class)

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


def _announce(kube: Kube | None, target: Target, *, namespace: str, size: plan.Size) -> None:
    """Say what the demo would do."""
    objects = plan.fit_to_cpu(plan.examples(), size, storage_class=target.storage_class)
    if kube is None:
        say("would start the local cluster, as `make cluster` does")
    else:
        say(f"would use the cluster at {kube.server}")
    say("would build with buildah, unless they are there, and push:")
    for reference in references_of(registry=target.registry).values():
        print(f"    {reference}")
    say(f"would delete namespace {namespace}, if it is there, and make it anew, and make {SYSTEM_NAMESPACE}")
    say("would fill the volumes with Job seed, and install the charts:")
    for command in upgrades(target.kubeconfig, BUILD / "demo" / "values.json"):
        print(f"    {shlex.join(command)}")
    say(f"would apply to namespace {namespace} and follow to their end:")
    for obj in objects:
        storage = obj["spec"].get("storageClassName")
        print(f"    {obj['kind']} {obj['metadata']['name']}{f', storage class {storage}' if storage else ''}")
    say("would leave all of it there until `make demo-down`")


if __name__ == "__main__":
    sys.exit(run_demo(small="--small" in sys.argv))
