"""The real operator with runs whose tasks lie elsewhere, and no node."""

from base64 import b64encode

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, TIME, World, user_error
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
FIELD = "spec.suite.harbor.dataset"
BUCKET = {"uri": "s3://sets/basic", "secretRef": {"name": "bucket"}}
TINY = {"configMapRef": {"name": "tiny", "key": "set.tgz"}}


def apply(world: World, kind: str, name: str, **fields: object) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}
    world.api.create(body, namespace=world.namespace)


def suite(dataset: dict[str, object]) -> dict[str, object]:
    return {"harbor": {"dataset": dataset}}


def test_a_run_waits_for_the_secret_of_its_tasks_and_for_its_keys(serving: World) -> None:
    serving.benchmark(suite=suite(BUCKET))
    told = serving.wait_reason(KIND, "run", "SecretNotFound")["message"]
    assert told.startswith(f"{FIELD}.secretRef: Secret bucket does not exist")
    apply(serving, "Secret", "bucket", stringData={"AWS_ACCESS_KEY_ID": "a"})
    lacks = f"{FIELD}.secretRef: Secret bucket has no key AWS_SECRET_ACCESS_KEY"

    def told_anew() -> bool:
        return serving.wait_reason(KIND, "run", "SecretNotFound")["message"].startswith(lacks)

    eventually(told_anew, what="the missing key is named", seconds=30)
    assert serving.jobs("run", kind="benchmark-run") == []
    keys = {"stringData": {"AWS_SECRET_ACCESS_KEY": "b"}}
    serving.api.merge("Secret", "bucket", keys, namespace=serving.namespace)
    serving.end_well(serving.wait_job("run", "run"), results=RESULTS)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")


def test_a_run_waits_for_the_secret_of_its_environment(serving: World) -> None:
    environment = {"uri": "s3://sets/company", "secretRef": {"name": "worlds"}}
    serving.benchmark(suite={"toolUse": {"environment": environment, "instances": {"file": "test.json"}}})
    told = serving.wait_reason(KIND, "run", "SecretNotFound")["message"]
    assert told.startswith("spec.suite.toolUse.environment.secretRef: Secret worlds does not exist")


def test_a_run_waits_for_the_config_map_of_its_tasks(serving: World) -> None:
    serving.benchmark(suite=suite(TINY))
    told = serving.wait_reason(KIND, "run", "ConfigMapNotFound")["message"]
    assert told.startswith(f"{FIELD}.configMapRef.name: ConfigMap tiny does not exist")
    apply(serving, "ConfigMap", "tiny", binaryData={"set.tgz": b64encode(b"tar").decode()})
    serving.wait_job("run", "run")


def test_what_is_fetched_is_told_while_it_is(serving: World, operator: OperatorProcess) -> None:
    serving.benchmark(suite=suite({"uri": "https://sets.example.com/basic.zip"}))
    job = serving.wait_job("run", "run")
    [pod] = eventually(lambda: serving.pods(job), what="the pod")
    [fetch] = pod["spec"]["initContainers"]
    path = f"benchmarkruns/{serving.namespace}/run"
    token = serving.pod_token(pod)
    assert {"name": "report-token", "mountPath": "/var/run/secrets/whetstone", "readOnly": True} in fetch[
        "volumeMounts"
    ]
    body: dict[str, object] = {"phase": "Fetching", "fetchedBytes": 1 << 33, "totalBytes": 3 << 33}
    assert operator.report(path, token=token, body=body) == 202
    progress = eventually(lambda: serving.get(KIND, "run")["status"].get("progress"), what="progress")
    progress.pop("updatedAt")
    assert progress == body
    assert operator.report(path, token=token, body={"phase": "Trials", "step": 0, "maxSteps": 8}) == 202
    eventually(
        lambda: "fetchedBytes" not in serving.get(KIND, "run")["status"]["progress"], what="only what the trials tell"
    )


def test_a_run_waits_for_the_claim_of_its_archive(world: World, operator: OperatorProcess) -> None:
    world.claims("models", "results")
    world.account()
    world.serve()
    world.start_engines()
    world.benchmark(suite=suite({"uri": "pvc://data/basic.zip"}))
    told = world.wait_reason(KIND, "run", "ClaimNotFound")["message"]
    assert told.startswith("spec.suite.harbor.dataset.uri: PersistentVolumeClaim data does not exist")
    world.claims("data")
    job = world.wait_job("run", "run")
    assert [one["name"] for one in job["spec"]["template"]["spec"]["initContainers"]] == ["fetch"]


def test_what_the_fetching_container_found_wrong_fails_the_run_at_once(serving: World) -> None:
    apply(serving, "Secret", "bucket", stringData={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    serving.benchmark(suite=suite(BUCKET))
    job = serving.wait_job("run", "run")
    [pod] = eventually(lambda: serving.pods(job), what="the pod")
    [fetch] = pod["spec"]["initContainers"]
    words = f"{FIELD} (s3://sets/basic): uri s3://sets/basic: there are no files; correct the uri or put it there"
    ended = {
        "exitCode": 65,
        "reason": "Error",
        "message": user_error("SourceNotFound", words).to_termination_message(),
        "startedAt": TIME,
        "finishedAt": TIME,
    }
    common = {"imageID": "", "ready": False, "restartCount": 0}
    main = {"name": "main", "image": "i", **common, "state": {"waiting": {"reason": "PodInitializing"}}}
    fetched = {"name": fetch["name"], "image": fetch["image"], **common, "state": {"terminated": ended}}
    status = {"phase": "Failed", "initContainerStatuses": [fetched], "containerStatuses": [main]}
    serving.set_pod_status(pod, status)
    failed = serving.wait_reason(KIND, "run", "SourceNotFound", condition="Failed")
    assert failed["message"] == words
    assert len(serving.pods(job)) == 1
