"""A finished loop, and what tests ask of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support.training import run_spec
from support.waiting import eventually
from whetstone_dev.demo import plan
from whetstone_dev.demo.kube import WHETSTONE, Kube
from whetstone_dev.demo.watch import condition, is_true

READY_SECONDS = 300.0
"""An engine that starts again: vLLM on 2 cores, with the adapter fetched, loaded and probed."""


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """A namespace whose claims hold the base model, training rows and tasks.

    Args:
        kube: The cluster.
        namespace: Its name.
    """

    kube: Kube
    namespace: str

    def apply(self, kind: str, name: str, spec: dict[str, Any], *, labels: dict[str, str] | None = None) -> None:
        """Apply an object of ours."""
        metadata = {"name": name, "labels": labels or {}}
        obj = {"apiVersion": WHETSTONE, "kind": kind, "metadata": metadata, "spec": spec}
        self.kube.apply(obj, namespace=self.namespace)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object of ours."""
        found = self.kube.get(WHETSTONE, kind, name=name, namespace=self.namespace)
        assert found is not None, f"{kind} {name} does not exist"
        return found

    def delete(self, kind: str, name: str) -> None:
        """Delete an object of ours."""
        self.kube.delete(WHETSTONE, kind, name=name, namespace=self.namespace)

    def jobs(self, label: str, name: str) -> list[dict[str, Any]]:
        """Return the Jobs of an object: `lora-training-job` or `benchmark-run`, and its name."""
        return self.kube.list("batch/v1", "Job", namespace=self.namespace, labels=f"whetstone.dev/{label}={name}")

    def ended_well(self, kind: str, name: str, *, seconds: float) -> dict[str, Any]:
        """Wait until a job or run is Ready, and return it; one that fails ends the test at once."""

        def ended() -> dict[str, Any] | None:
            found = self.get(kind, name)
            failed = condition(found, "Failed")
            if failed is not None:
                pytest.fail(f"{kind} {name} failed: {failed['message']}")
            return found if is_true(found, "Ready") else None

        return eventually(ended, what=f"{kind} {name} Ready", seconds=seconds)

    def host_folder(self, claim: str) -> Path:
        """Return where the node keeps a claim, once it is bound; the node is this machine."""

        def bound() -> str | None:
            found = self.kube.get("v1", "PersistentVolumeClaim", name=claim, namespace=self.namespace)
            return found["spec"].get("volumeName") if found else None

        name = eventually(bound, what=f"claim {claim} is bound", seconds=120)
        volume = self.kube.get("v1", "PersistentVolume", name=name)
        assert volume is not None
        source = volume["spec"].get("local") or volume["spec"]["hostPath"]
        return Path(source["path"])

    def pods(self, label: str, name: str) -> list[dict[str, Any]]:
        """Return the pods of an object, in the order of their creation."""
        pods = self.kube.list("v1", "Pod", namespace=self.namespace, labels=f"whetstone.dev/{label}={name}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


@dataclass(frozen=True, kw_only=True)
class Loop(Seeded):
    """The objects of `examples/loop` at their end.

    Args:
        summary: What the demo says of them.
    """

    summary: dict[str, Any]

    def server(self) -> dict[str, Any]:
        """Return the ModelServer."""
        return self.get("ModelServer", plan.SERVER)

    def engine_pods(self) -> list[dict[str, Any]]:
        """Return the engine's pods that are not going away."""
        labels = f"whetstone.dev/model-server={plan.SERVER}"
        pods = self.kube.list("v1", "Pod", namespace=self.namespace, labels=labels)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def adapter(self) -> dict[str, Any]:
        """Return the server's status of the adapter."""
        adapters = self.server()["status"].get("adapters") or []
        found = [item for item in adapters if item["name"] == plan.ADAPTER]
        assert found, "the server's status has no adapter"
        status: dict[str, Any] = found[0]
        return status

    def is_serving(self) -> bool:
        """Return whether the server is Ready with the adapter effective on its one replica."""
        ready = condition(self.server(), "Ready")
        return bool(ready and ready["status"] == "True") and self.adapter().get("effectiveReplicas") == 1

    def promote(self, run: str) -> None:
        """Move the alias to the adapter by a run of the oracle that passes its gate."""
        target = {"modelServerRef": {"name": plan.SERVER}, "adapter": plan.ADAPTER}
        gates = [{"metric": "Mean", "minimum": "0.9"}]
        spec = run_spec(output=run, target=target, gates=gates)
        self.apply("BenchmarkRun", run, spec, labels={"example.com/promotes": plan.ALIAS})
        eventually(
            lambda: is_true(self.get("BenchmarkRun", run), "GatePassed"),
            what="the oracle passes the gate",
            seconds=180,
        )
        version = self.adapter()["servedName"]
        eventually(
            lambda: self.ask(plan.ALIAS) == (200, version), what="the alias answers with the adapter", seconds=60
        )

    def ask(self, model: str) -> tuple[int, str | None]:
        """Send one chat request; return the HTTP status and the version that the answer names.

        A pod is an endpoint of its Service a moment after it is Ready. Until then the API server, through which this
        request goes, answers itself: that is waited for. What a pod answers is returned, whatever it is.
        """
        client = self.kube.openai(namespace=self.namespace, service=plan.SERVER)

        def answered() -> tuple[int, str | None] | None:
            try:
                raw = client.with_options(max_retries=0).chat.completions.with_raw_response.create(
                    model=model, messages=[{"role": "user", "content": "ls"}], max_tokens=1, temperature=0
                )
            except openai.APIStatusError as error:
                if "no endpoints available" in error.response.text:
                    return None
                return error.status_code, error.response.headers.get("x-whetstone-adapter")
            return raw.status_code, raw.headers.get("x-whetstone-adapter")

        return eventually(answered, what=f"an endpoint of {plan.SERVER}")

    def stream(self, model: str) -> None:
        """Read a streamed answer to its end; where it breaks off, say what the engine's pods tell."""
        client = self.kube.openai(namespace=self.namespace, service=plan.SERVER)
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "ls"}], max_tokens=4, temperature=0, stream=True
        )
        try:
            assert list(answer)
        except httpx.RemoteProtocolError as error:
            told = {pod["metadata"]["name"]: pod["status"].get("containerStatuses") for pod in self.engine_pods()}
            pytest.fail(f"an answer of {model} broke off: {error}; {told}")


def server_example() -> dict[str, Any]:
    """Return the spec of the demo's ModelServer, fitted to this machine; the caller may change it."""
    fitted = plan.fit_to_cpu(plan.examples(), plan.SMALL)
    spec: dict[str, Any] = next(obj["spec"] for obj in fitted if obj["kind"] == "ModelServer")
    return spec


def pod_is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod's condition Ready is True."""
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"
