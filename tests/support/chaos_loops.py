"""Loops on the node: train, hot-load, benchmark, again and again; and what must be true of them afterwards."""

import itertools
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from support.chaos import lost
from support.loop import pod_is_ready, server_example
from support.obedient_runs import Runs
from support.training import run_spec, training_spec
from support.waiting import eventually
from whetstone_api.vocabulary import Label
from whetstone_dev.demo.kube import WHETSTONE
from whetstone_dev.demo.watch import condition, is_true

SERVER, ADAPTERS = "chaos", ("left", "right")
TRAINING_LABEL, RUN_LABEL = "lora-training-job", "benchmark-run"
STEPS, EVERY_STEPS, TASKS = 6, 2, 3
LOOP_SECONDS: Final = 900.0
"""For one part of a loop, with kills, on a machine that does other things too."""
CHILDREN: Final = (
    *(("v1", kind) for kind in ("Pod", "ConfigMap", "Secret", "Service")),
    *(("apps/v1", kind) for kind in ("Deployment", "ReplicaSet")),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("coordination.k8s.io/v1", "Lease"),
)
_OURS: Final = ("ModelServer", "LoRATrainingJob", "BenchmarkRun")
_STEP = re.compile(r"\{'loss'")
_RESUMED = re.compile(r"going on from \S*checkpoint-(\d+)")
_USED_UP: Final = "the maximum number of retries has been reached"
"""What Harbor notes of a trial that was spoiled in each of its tries."""
_AGENT: Final = {"name": "whetstone", "parameters": {"maxTurns": 2, "maxTokens": 32}}


@dataclass(frozen=True, kw_only=True)
class Loops(Runs):
    """The namespace, the server of all loops, and what they have made."""

    trainings: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    _served: dict[str, str] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, **fields: Any) -> None:
        """Apply the server with the latest adapter of each loop."""
        spec = server_example()
        spec.pop("aliases", None)
        named = [{"name": name, "trainingJobRef": {"name": job}} for name, job in sorted(self._served.items())]
        capacity = {"maxLoras": 4, "maxRank": 16}
        changes = {"adapters": named, "drain": {"seconds": 5}, "adapterCapacity": capacity}
        self.apply("ModelServer", SERVER, {**spec, **changes, **fields})

    def undisturbed_digest(self) -> str:
        """Return the content digest of an adapter in whose training nothing happens."""
        job = self._train("undisturbed")
        assert job["status"]["attempts"] == 1
        return str(job["status"]["adapter"]["digest"])

    def loop(self, adapter: str, number: int) -> None:
        """Train an adapter, serve it in place of the one before, and measure it."""
        name = f"{adapter}-{number}"
        trained = self._train(name)
        with self._turn:
            self._served[adapter] = name
            self.serve()
        digest = trained["status"]["adapter"]["digest"]
        eventually(
            lambda: self._holds(adapter, digest), what=f"version {number} of {adapter} is served", seconds=LOOP_SECONDS
        )
        suite = {"harbor": {**run_spec(output="")["suite"]["harbor"], "tasks": {"limit": TASKS}}}
        target = {"modelServerRef": {"name": SERVER}, "adapter": adapter}
        run = f"run-{name}"
        self.runs.append(run)
        self.apply("BenchmarkRun", run, run_spec(output=run, suite=suite, target=target, agent=_AGENT))
        self._ended("BenchmarkRun", run)

    def _train(self, name: str) -> dict[str, Any]:
        spec = training_spec(
            output=name,
            dataset={"source": {"uri": "pvc://data/train.jsonl"}},
            hyperparameters={"maxSteps": STEPS, "batchSize": 2, "maxLength": 256},
            checkpoint={"everySteps": EVERY_STEPS},
        )
        self.trainings.append(name)
        self.apply("LoRATrainingJob", name, spec)
        return self._ended("LoRATrainingJob", name)

    def _ended(self, kind: str, name: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            found = self.get(kind, name)
            failed = condition(found, "Failed")
            if failed is not None and not self._given_up(kind, name):
                raise RuntimeError(f"{kind} {name} failed: {failed['message']}")
            return found if failed is not None or is_true(found, "Complete") else None

        return eventually(ended, what=f"{kind} {name} has ended", seconds=LOOP_SECONDS)

    def _given_up(self, kind: str, name: str) -> bool:
        """Return whether Kubernetes has lost patience with a run whose pods were killed: that is its right end."""
        jobs = self.jobs(RUN_LABEL, name) if kind == "BenchmarkRun" else []
        reasons = [one.get("reason") for job in jobs for one in job["status"].get("conditions") or []]
        return "BackoffLimitExceeded" in reasons

    def _holds(self, adapter: str, digest: str) -> bool:
        found = self.get("ModelServer", SERVER).get("status", {}).get("adapters") or []
        status = next((one for one in found if one["name"] == adapter), {})
        assert (status.get("digest"), status.get("effectiveReplicas")) == (digest, 1), f"{status}"
        return True

    def require_served(self) -> None:
        """Check that the server is Ready with the latest adapters."""

        def served() -> bool:
            server = self.get("ModelServer", SERVER)
            assert is_true(server, "Ready"), f"{condition(server, 'Ready')}"
            assert server["metadata"]["generation"] == server["status"]["observedGeneration"]
            pods = [pod for pod in self.pods("model-server", SERVER) if not pod["metadata"].get("deletionTimestamp")]
            assert [pod_is_ready(pod) for pod in pods] == [True]
            latest = {name: self.get("LoRATrainingJob", job) for name, job in self._served.items()}
            return all(self._holds(name, job["status"]["adapter"]["digest"]) for name, job in latest.items())

        eventually(served, what="the server serves all", seconds=LOOP_SECONDS)

    def require_trained(self, name: str, *, digest: str) -> None:
        """Check that a training has the weights of an undisturbed one, and repeated no more than it may."""
        job = self.get("LoRATrainingJob", name)
        assert is_true(job, "Complete"), f"{name}: {condition(job, 'Ready')}"
        assert job["status"]["adapter"]["digest"] == digest, f"{name} has other weights"
        logs = [self._log(pod) for pod in self.training_pods(name)]
        for before, after in itertools.pairwise(logs):
            done, from_step = _resumed(before) + len(_STEP.findall(before)), _resumed(after)
            assert done - from_step <= EVERY_STEPS, f"{name} did {done} steps and went on from {from_step}"

    def training_pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a training that make steps, ended ones too, in the order of their creation."""
        pods = self.pods(TRAINING_LABEL, name)
        return [pod for pod in pods if pod["metadata"]["labels"].get(str(Label.STAGE)) == "train"]

    def _log(self, pod: dict[str, Any]) -> str:
        return self.kube.logs(namespace=self.namespace, pod=pod["metadata"]["name"], container="main", lines=10000)

    def require_measured(self, name: str, *, before: dict[str, bytes]) -> None:
        """Check that a run has each trial once, those that had ended as they were, and no void one with tries left."""
        run = self.get("BenchmarkRun", name)
        after = self.finished(name)
        assert {folder: after.get(folder) for folder in before} == before
        tasks = [folder.rpartition("__")[0] for folder in after]
        assert len(tasks) == len(set(tasks)), f"{name} has a task twice: {tasks}"
        if self._given_up("BenchmarkRun", name):
            return
        assert is_true(run, "Complete"), f"{name}: {condition(run, 'Ready')}"
        results = run["status"]["results"]
        assert results["trials"] == TASKS
        assert len(tasks) == TASKS - results["void"], f"{name}: {sorted(after)}"
        logs = [path.read_text() for path in self.host_folder("results").glob(f"{name}/harbor/*/job.log")]
        used_up = sum(log.count(_USED_UP) for log in logs)
        assert results["void"] <= used_up, f"{name} has void trials that were not tried again"
        assert self.trial_pods(name) == []

    def require_jobs_once(self, seen: dict[str, set[str]]) -> None:
        """Check that each stage of each object had one Job, of one uid."""
        assert {name: uids for name, uids in seen.items() if len(uids) > 1} == {}
        found = sorted(name.rpartition("-")[0] for name in seen)
        wanted = [f"{name}-{stage}" for name in self.trainings for stage in ("prepare", "train")]
        assert found == sorted([*wanted, *(f"{name}-run" for name in self.runs)])

    def orphans(self) -> list[str]:
        """Return the children whose owner is gone."""
        kinds = [*((WHETSTONE, kind) for kind in _OURS), *CHILDREN]
        objects = {
            f"{kind} {obj['metadata']['name']}": obj
            for version, kind in kinds
            for obj in self.kube.list(version, kind, namespace=self.namespace)
        }
        return lost(objects)

    def remove_all(self) -> None:
        """Delete all that the loops made, and wait until nothing is left of it."""
        for kind, names in (
            ("BenchmarkRun", self.runs),
            ("LoRATrainingJob", self.trainings),
            ("ModelServer", [SERVER]),
        ):
            for name in names:
                self.delete(kind, name)
        labels = {"model-server": [SERVER], TRAINING_LABEL: self.trainings, RUN_LABEL: self.runs}
        for label, names in labels.items():
            wanted = f"whetstone.dev/{label} in ({','.join(names)})"
            if names:
                eventually(lambda wanted=wanted: self._labelled(wanted) == [], what=f"{wanted} gone", seconds=180)

    def _labelled(self, labels: str) -> list[str]:
        return [
            f"{kind} {obj['metadata']['name']}"
            for version, kind in CHILDREN
            for obj in self.kube.list(version, kind, namespace=self.namespace, labels=labels)
        ]


class Ledger:
    """Writes down what is there while loops run: every Job, and the result of every trial that has ended.

    Args:
        loops: The loops.
    """

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._failed: Exception | None = None
        self.jobs: dict[str, set[str]] = defaultdict(set)
        """Uids by name."""
        self.trials: dict[str, dict[str, bytes]] = defaultdict(dict)
        """Results as they were first seen, by run and trial."""
        self.changed: list[str] = []

    def __enter__(self) -> "Ledger":
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()
        if self._failed is not None:
            raise self._failed

    def _write(self) -> None:
        while not self._over.wait(1.0):
            try:
                self._look()
            except Exception as error:
                self._failed = error
                return

    def _look(self) -> None:
        loops = self._loops
        names = {*loops.trainings, *loops.runs}
        for job in loops.kube.list("batch/v1", "Job", namespace=loops.namespace):
            name = job["metadata"]["name"]
            if name.rpartition("-")[0].rpartition("-")[0] in names:
                self.jobs[name].add(job["metadata"]["uid"])
        for run in list(loops.runs):
            for folder, result in loops.finished(run).items():
                if self.trials[run].setdefault(folder, result) != result:
                    self.changed.append(f"{run}/{folder}")


def _resumed(log: str) -> int:
    """Return the step from which a pod went on."""
    found = _RESUMED.findall(log)
    return int(found[0]) if found else 0
