"""What a user, a kubelet and a Job's program would do, for tests without a node."""

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from integration.api import Api, Object, Refused
from support.waiting import eventually
from whetstone_api.jobs import EXIT_USER_ERROR
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.vocabulary import API_VERSION, REPORT_AUDIENCE

TIME = "2026-01-01T00:00:00Z"
JOB_NAME = "batch.kubernetes.io/job-name"
"""Label by which the Job controller names the Job of a pod."""
DIGEST = "sha256:" + "a" * 64
ADAPTER = {"uri": "pvc://adapters/a", "digest": DIGEST, "rank": 16, "bytes": 10, "publishedAt": TIME}
DATASET = {"rows": 3, "tokens": 30, "lossTokens": 10, "longest": 12, "duplicates": 0}
DATASET |= dict.fromkeys(("dropped", "filtered", "truncated", "undrawn"), 0)
TRAINING_SPEC: Mapping[str, Any] = {
    "baseModel": {"source": {"uri": "pvc://models/base"}},
    "datasets": [{"name": "d", "source": {"uri": "pvc://data/train.jsonl"}}],
    "workspace": {"claimName": "workspace"},
    "output": {"adapter": {"uri": "pvc://adapters/a"}},
}
SERVER_SPEC: Mapping[str, Any] = {"model": {"source": {"uri": "pvc://models/base"}, "servedName": "base"}}
RUN_SPEC: Mapping[str, Any] = {
    "target": {"modelServerRef": {"name": "server"}},
    "suite": {"harbor": {"dataset": {"uri": "pvc://data/tasks"}}},
    "output": {"uri": "pvc://results/run"},
}
RESULTS = {
    "tasks": 8,
    "trials": 8,
    "mean": "0.5",
    "strictMean": "0.5",
    "coverage": "1",
    "void": 0,
    "interval": {"low": "0.2", "high": "0.8"},
}
CLAIMS = ("models", "data", "workspace", "adapters", "results")


class World:
    """One namespace.

    Args:
        api: The administrator's client.
        namespace: Its name.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def create(self, kind: str, name: str, spec: Mapping[str, Any]) -> Object:
        """Create an object of ours."""
        obj = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": copy.deepcopy(dict(spec))}
        return self.api.create(obj, namespace=self.namespace)

    def train(self, name: str = "train", **changes: Any) -> Object:
        """Create a LoRATrainingJob."""
        return self.create("LoRATrainingJob", name, {**TRAINING_SPEC, **changes})

    def claims(self, *names: str) -> None:
        """Create claims; all that the objects of these tests name, when none is given."""
        for name in names or CLAIMS:
            spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
            claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
            self.api.create(claim, namespace=self.namespace)

    def serve(self, name: str = "server", **changes: Any) -> Object:
        """Create a ModelServer."""
        return self.create("ModelServer", name, {**SERVER_SPEC, **changes})

    def benchmark(self, name: str = "run", **changes: Any) -> Object:
        """Create a BenchmarkRun of the server `server`."""
        return self.create("BenchmarkRun", name, {**RUN_SPEC, "output": {"uri": f"pvc://results/{name}"}, **changes})

    def account(self, name: str = "whetstone-runner") -> None:
        """Create the runner's service account, as the chart does in served namespaces."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        self.api.create(account, namespace=self.namespace)

    def engine_pods(self, name: str = "server") -> list[Object]:
        """Return the pods of a server."""
        return self.api.list("Pod", namespace=self.namespace, labels=f"whetstone.dev/model-server={name}")

    def set_pod_status(self, pod: Object, status: Object) -> None:
        """Tell a pod's state as its kubelet does."""
        self.api.merge("Pod", pod["metadata"]["name"], {"status": status}, namespace=self.namespace, status=True)

    def start_engines(self, name: str = "server") -> None:
        """Let every pod of a server become Ready."""

        def started() -> bool:
            pods = self.engine_pods(name)
            for pod in pods:
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}
                try:
                    self.set_pod_status(pod, {"phase": "Running", "startTime": TIME, "conditions": [ready]})
                except Refused as error:
                    if error.status == HTTPStatus.NOT_FOUND:
                        raise AssertionError(f"a rollout replaces pods meanwhile: {error}") from error
                    raise
            return bool(pods)

        eventually(started, what=f"pods of {name}")
        self.wait_reason("ModelServer", name, "Serving")

    def pod_token(self, pod: Object, *, audience: str = REPORT_AUDIENCE) -> str:
        """Return the token that a kubelet projects into a pod."""
        metadata = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        account = pod["spec"].get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        answer = self.api.raw("POST", path, {"spec": {"audiences": [audience], "boundObjectRef": bound}})
        return str(answer["status"]["token"])

    def get(self, kind: str, name: str) -> Object:
        """Return an object that must exist; its status is empty until the operator has written one."""
        obj = self.api.get(kind, name, namespace=self.namespace)
        assert obj is not None, f"{kind} {name} does not exist"
        return {"status": {}, **obj}

    def condition(self, kind: str, name: str, condition: str) -> Object | None:
        """Return a condition of an object; None when it is absent."""
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == condition), None)

    def wait_reason(self, kind: str, name: str, reason: str, *, condition: str = "Ready") -> Object:
        """Wait until a condition has a reason, and return the condition."""

        def found() -> Object | None:
            current = self.condition(kind, name, condition)
            assert current is not None, f"{condition} is absent"
            assert current["reason"] == reason, f"{current}"
            return current

        return eventually(found, what=f"{kind} {name}: {condition} has reason {reason}")

    def wait_events(self, *reasons: str) -> None:
        """Wait for Events with these reasons; they follow the status that they tell of."""

        def found() -> bool:
            told = {event["reason"] for event in self.api.list("Event", namespace=self.namespace)}
            assert set(reasons) <= told, f"{sorted(told)}"
            return True

        eventually(found, what=f"events {', '.join(reasons)}")

    def jobs(self, owner: str, *, kind: str = "lora-training-job") -> list[Object]:
        """Return the Jobs of an object that are not being deleted, oldest first."""
        labels = f"whetstone.dev/{kind}={owner}"
        found = self.api.list("Job", namespace=self.namespace, labels=labels)
        living = [job for job in found if "deletionTimestamp" not in job["metadata"]]
        return sorted(living, key=lambda job: str(job["metadata"]["creationTimestamp"]))

    def wait_job(self, owner: str, stage: str) -> Object:
        """Wait for the Job of a stage and return it."""

        def found() -> Object | None:
            jobs = self.jobs(owner, kind="benchmark-run" if stage == "run" else "lora-training-job")
            return next((job for job in jobs if f"-{stage}-" in job["metadata"]["name"]), None)

        return eventually(found, what=f"Job of stage {stage} of {owner}")

    def pods(self, job: Object) -> list[Object]:
        """Return a Job's pods."""
        labels = f"{JOB_NAME}={job['metadata']['name']}"
        return self.api.list("Pod", namespace=self.namespace, labels=labels)

    def end_pod(
        self, job: Object, report: TerminationReport, *, code: int | None = None, evicted: bool = False
    ) -> None:
        """End a Job's running pod as a kubelet tells it when the program has left its report.

        Args:
            job: The Job.
            report: The report.
            code: Exit code; the one of the report's outcome when None.
            evicted: Whether the pod was told to make way.
        """
        codes = {Outcome.SUCCEEDED: 0, Outcome.FAILED: EXIT_USER_ERROR, Outcome.RETRY: 1}
        pod, code = self._unended(job), codes[report.outcome] if code is None else code
        self.set_pod_status(pod, ended_status(pod, report, code=code, evicted=evicted))

    def kill_for_memory(self, job: Object) -> Object:
        """End a Job's running pod as a kubelet tells it when the kernel has killed it; return the pod."""
        pod = self._unended(job)
        self.set_pod_status(pod, ended_status(pod, None, code=137, cause="OOMKilled"))
        return pod

    def run_pod(self, job: Object) -> Object:
        """Let a Job's waiting pod run, as its kubelet tells; return the pod."""
        pod = self._unended(job)
        self.set_pod_status(pod, running_status(pod))
        return pod

    def _unended(self, job: Object) -> Object:
        """Return a pod of a Job that has not ended, once there is one."""
        return eventually(
            lambda: [
                pod for pod in self.pods(job) if pod.get("status", {}).get("phase") in (None, "Pending", "Running")
            ],
            what=f"a pod of {job['metadata']['name']}",
            seconds=60,
        )[0]

    def end_well(self, job: Object, **result: Any) -> None:
        """End a Job's pod with a result."""
        self.end_pod(job, succeeded(result))


def time_of_day() -> str:
    """Return the time as objects have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def engine_status(address: str, *, ready: bool = True, started: str | None = None) -> Object:
    """Return the status of an engine pod.

    Args:
        address: Address of its sidecar.
        ready: Whether it is.
        started: Since when it runs; from now on when None.
    """
    now = time_of_day()
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": started or now,
        "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": now}],
    }


def running_status(pod: Object) -> Object:
    """Return the status of a Job's pod that runs from now on, as its kubelet tells it."""
    now = time_of_day()
    container = {"name": pod["spec"]["containers"][0]["name"], "image": "i", "imageID": "", "restartCount": 0}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    running = {**container, "ready": True, "state": {"running": {"startedAt": now}}}
    return {"phase": "Running", "startTime": now, "conditions": [ready], "containerStatuses": [running]}


def ended_status(
    pod: Object, report: TerminationReport | None, *, code: int, cause: str | None = None, evicted: bool = False
) -> Object:
    """Return the status of a Job's pod that has ended.

    Args:
        pod: The pod.
        report: What its program left; None where it could not.
        code: Exit code.
        cause: Why it ended, in the kubelet's word; the one that goes with the code when None.
        evicted: Whether the pod was told to make way.
    """
    terminated = {
        "exitCode": code,
        "reason": cause or ("Error" if code else "Completed"),
        "startedAt": TIME,
        "finishedAt": TIME,
        **({"message": report.to_termination_message()} if report else {}),
    }
    container = pod["spec"]["containers"][0]
    told = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    status: Object = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{**told, "state": {"terminated": terminated}}],
    }
    if evicted:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": TIME}]
    return status


def done_status(pod: Object, result: Mapping[str, Any]) -> Object:
    """Return the status of a Job's pod whose program has ended with a result."""
    return ended_status(pod, succeeded(result), code=0)


def succeeded(result: Mapping[str, Any]) -> TerminationReport:
    """Return the report of a program that has done its work."""
    return TerminationReport(outcome=Outcome.SUCCEEDED, reason="Succeeded", message="", result=dict(result))


def usual_result(owner: str, stage: str) -> Object:
    """Return what the program of a Job's stage ends with where nothing else is said."""
    if stage == "prepare":
        return {"dataset": DATASET}
    return {"adapter": {**ADAPTER, "uri": f"pvc://adapters/{owner}"}} if stage == "train" else {"results": RESULTS}


def user_error(reason: str, message: str) -> TerminationReport:
    """Return the report of a program that found its input wrong."""
    return TerminationReport(outcome=Outcome.FAILED, reason=reason, message=message)
