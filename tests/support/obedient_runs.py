"""Runs on the node against an engine whose model does as it is told: quick, and the same each time."""

import json
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.adapters import lineage, make_adapter, make_model
from support.fake_vllm import BASE, record_probe
from support.loop import Seeded
from support.waiting import eventually
from whetstone_artifacts.fingerprint import model_fingerprint
from whetstone_dev.demo.watch import condition, is_true

SERVER = "obedient"
LABEL = "benchmark-run"
RUN_SECONDS = 150.0
"""A small run, its pods' start included."""
SERVE_SECONDS = 120.0
AGENT_SECONDS = 120.0
_SUPPORT = Path(__file__).parent
_PACKAGES = ("vllm/", "vllm/entrypoints/", "vllm/entrypoints/cli/", "support/")
_PROGRAMS = {
    "main.py": ("vllm/entrypoints/cli/main.py", "obedient_engine.py"),
    "fake_vllm.py": ("support/fake_vllm.py", "fake_vllm.py"),
}
"""Path in the engine's container, and the file here, by key of the ConfigMap."""
_TEST = "#!/bin/sh\ncp /app/answer.txt /logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt\n"
_OWN = frozenset({"durationSeconds", "uri"})
"""Figures that no two runs have in common."""


@dataclass(frozen=True, kw_only=True)
class Runs(Seeded):
    """A namespace with that server, tasks that tests write, and runs.

    Args:
        images: Full reference, by name, of the images.
    """

    images: dict[str, str]

    def prepare(self) -> None:
        """Make the claims, the program that takes the engine's place, and the server; wait until it serves."""
        for name in ("models", "adapters", "data", "results"):
            claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
            self._apply("PersistentVolumeClaim", name, spec=claim)
        texts = {key: (_SUPPORT / name).read_text() for key, (_, name) in _PROGRAMS.items()}
        self._apply("ConfigMap", "engine", data={**texts, "empty": ""})
        make_model(self.host_folder("models") / "base")
        self.serve()
        self.wait_serving()

    def serve(self, **fields: Any) -> None:
        """Apply the server."""
        items = [{"key": "empty", "path": f"{package}__init__.py"} for package in _PACKAGES]
        items += [{"key": name, "path": path} for name, (path, _) in _PROGRAMS.items()]
        mounts = [
            {"name": "program", "mountPath": f"/home/whetstone/{folder}", "subPath": folder}
            for folder in ("vllm", "support")
        ]
        overlay = {
            "volumes": [{"name": "program", "configMap": {"name": "engine", "items": items}}],
            "containers": [{"name": "engine", "volumeMounts": mounts}],
        }
        spec = {
            "model": {"source": {"uri": "pvc://models/base"}, "servedName": BASE},
            # It has the guard, uvicorn and little else to load.
            "engine": {"image": self.images["benchmark"]},
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "drain": {"seconds": 0},
            "adapterStores": [{"name": "published", "claimName": "adapters"}],
            "podTemplate": {"spec": overlay},
            **fields,
        }
        self.apply("ModelServer", SERVER, spec)

    def wait_serving(self) -> None:
        """Wait until the server is Ready for its present spec."""

        def serving() -> bool:
            server = self.get("ModelServer", SERVER)
            assert is_true(server, "Ready"), json.dumps(condition(server, "Ready"))
            return bool(server["metadata"]["generation"] == server["status"]["observedGeneration"])

        eventually(serving, what="the server serves", seconds=SERVE_SECONDS)

    def make_adapter(self, name: str, *, effect: float) -> str:
        """Put an adapter with an effect, in nats, into the claim `adapters`, and return its digest."""
        fingerprint = model_fingerprint(self.host_folder("models") / "base")
        folder = self.host_folder("adapters") / name
        digest = make_adapter(
            folder,
            config={"lora_alpha": round(effect * 100)},
            probe=record_probe(effect=effect, fingerprint=fingerprint),
            history=lineage(fingerprint=fingerprint),
        )
        for path in folder.iterdir():
            # safetensors writes for its own user alone, and the sidecar is another one.
            path.chmod(0o644)
        return digest

    def write_tasks(self, suite: str, commands: dict[str, str], *, agent_seconds: float = AGENT_SECONDS) -> None:
        """Write tasks whose reward is what their command puts into `answer.txt`.

        Args:
            suite: Folder in the claim `data`.
            commands: What the instruction tells the model to run, by the task's name.
            agent_seconds: How long the agent may work.
        """
        for name, command in commands.items():
            texts = {"instruction.md": f"Task {name}.\nRun: {command}\n", "tests/test.sh": _TEST}
            self.write_task(suite, name, texts, agent_seconds=agent_seconds)

    def write_task(
        self,
        suite: str,
        name: str,
        texts: dict[str, str],
        *,
        settings: str = "",
        agent_seconds: float = AGENT_SECONDS,
    ) -> None:
        """Write a task's folder.

        Args:
            suite: Folder in the claim `data`.
            name: The task's name.
            texts: Text of each of its files but `task.toml`, by path.
            settings: What `task.toml` holds beside what all tasks have.
            agent_seconds: How long the agent may work.
        """
        image = self.images["task"]
        common = f'[environment]\ndocker_image = "{image}"\nworkdir = "/app"\nbuild_timeout_sec = 300.0\n'
        toml = f'schema_version = "1.4"\n{settings}\n[agent]\ntimeout_sec = {agent_seconds}\n{common}'
        for path, text in {"task.toml": toml, **texts}.items():
            file = self.host_folder("data") / suite / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def start(self, name: str, suite: str, /, **fields: Any) -> None:
        """Start a run over a suite with our own agent; `fields` are further ones of the spec, or others instead."""
        trial = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
        spec = {
            "target": {"modelServerRef": {"name": SERVER}},
            "suite": {"harbor": {"dataset": {"uri": f"pvc://data/{suite}"}, "trialResources": trial}},
            "agent": {"name": "whetstone", "parameters": {"maxTurns": 4}},
            "concurrency": 4,
            "output": {"uri": f"pvc://results/{name}"},
            "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
            **fields,
        }
        self.apply("BenchmarkRun", name, spec)

    def end(self, name: str, *, seconds: float = RUN_SECONDS) -> dict[str, Any]:
        """Wait until a run is Ready, and return it."""
        return self.ended_well("BenchmarkRun", name, seconds=seconds)

    def hold(self, *words: str) -> None:
        """Make the model wait in every conversation that has one of these words."""
        self.host_folder("models").joinpath("hold").write_text(" ".join(words))

    def release(self) -> None:
        """Let the model answer all."""
        self.host_folder("models").joinpath("hold").unlink(missing_ok=True)

    def forget(self, version: str) -> None:
        """Make the engine lose a version of an adapter, however often it is loaded again."""
        self.host_folder("models").joinpath("forgotten").write_text(version)

    def remember(self) -> None:
        """Let the engine keep all that it loads."""
        self.host_folder("models").joinpath("forgotten").unlink(missing_ok=True)

    def adapter(self, name: str) -> dict[str, Any]:
        """Return the server's status of an adapter."""
        found = self.get("ModelServer", SERVER)["status"].get("adapters") or []
        assert name in [one["name"] for one in found], f"the server's status has no adapter {name}"
        return next(dict(one) for one in found if one["name"] == name)

    def wait_effective(self, name: str, digest: str) -> None:
        """Wait until a version of an adapter is effective on the one replica."""

        def effective() -> bool:
            status = self.adapter(name)
            assert (status.get("digest"), status.get("effectiveReplicas")) == (digest, 1), json.dumps(status)
            return True

        eventually(effective, what=f"{name} is effective", seconds=SERVE_SECONDS)

    def finished(self, name: str) -> dict[str, bytes]:
        """Return the result that Harbor wrote of each trial that has a reward, by the trial's folder."""
        found = {}
        for path in self.host_folder("results").glob(f"{name}/harbor/*/*/result.json"):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # a void one, which is run again
            if not content.endswith(b"}"):
                continue  # Harbor is writing it
            if (json.loads(content).get("verifier_result") or {}).get("rewards"):
                found[path.parent.name] = content
        return found

    def wait_finished(self, name: str, tasks: Iterable[str]) -> dict[str, bytes]:
        """Wait until these tasks have a finished trial, and return what `finished` does."""
        wanted = set(tasks)

        def done() -> dict[str, bytes] | None:
            found = self.finished(name)
            names = {folder.rpartition("__")[0] for folder in found}
            assert wanted <= names, f"finished {sorted(names)}"
            return found

        return eventually(done, what=f"trials of {sorted(wanted)} of {name} finished", seconds=RUN_SECONDS)

    def artifact(self, name: str) -> dict[str, Any]:
        """Return the published `results.json` of a run."""
        path = self.host_folder("results") / name / "results.json"
        artifact: dict[str, Any] = json.loads(path.read_text())
        return artifact

    def engine_pods(self) -> list[dict[str, Any]]:
        """Return the engine's pods that are not going away."""
        pods = self.pods("model-server", SERVER)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def runner_pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a run's runners, ended ones too."""
        return [pod for pod in self.pods(LABEL, name) if not is_trial(pod)]

    def trial_pods(self, name: str) -> list[str]:
        """Name the trial pods of a run."""
        return [pod["metadata"]["name"] for pod in self.pods(LABEL, name) if is_trial(pod)]

    def remove(self, name: str) -> None:
        """Delete a run, and wait until nothing is left of it in the cluster."""
        self.delete("BenchmarkRun", name)
        eventually(lambda: not self.children(name), what=f"children of {name} gone", seconds=RUN_SECONDS)

    def children(self, name: str) -> list[str]:
        """Name everything in the cluster that carries a run's label."""
        kinds = [("batch/v1", "Job"), ("v1", "Pod"), ("v1", "ConfigMap"), ("networking.k8s.io/v1", "NetworkPolicy")]
        label = f"whetstone.dev/{LABEL}={name}"
        return [
            f"{kind} {one['metadata']['name']}"
            for version, kind in kinds
            for one in self.kube.list(version, kind, namespace=self.namespace, labels=label)
        ]

    def _apply(self, kind: str, name: str, **fields: Any) -> None:
        self.kube.apply(
            {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}, namespace=self.namespace
        )


def is_trial(pod: dict[str, Any]) -> bool:
    """Return whether a pod is a trial's sandbox."""
    return bool(pod["metadata"]["labels"].get("app.kubernetes.io/component") == "trial")


def figures(run: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of an ended run that must be the same however it went."""
    return {key: value for key, value in run["status"]["results"].items() if key not in _OWN}


def rewards(artifact: dict[str, Any]) -> dict[str, list[float | None]]:
    """Return the reward of each trial, by task."""
    return {task["task"]: [trial.get("reward") for trial in task["trials"]] for task in artifact["tasks"]}


def kill_process(pid: int) -> None:
    """End a process of this machine without any warning."""
    os.kill(pid, signal.SIGKILL)
