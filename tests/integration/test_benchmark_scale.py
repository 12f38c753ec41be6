"""The real operator against a real API server: BenchmarkRuns in several pods, their progress, and what may change."""

from typing import Any

import pytest
from integration.operator_process import OperatorProcess
from integration.world import RESULTS, World
from support.waiting import eventually

pytestmark = pytest.mark.integration
KIND = "BenchmarkRun"
SMALL, LARGE = {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}


@pytest.fixture
def serving(world: World, operator: OperatorProcess) -> World:
    """A namespace with a serving server, and all that runs need."""
    world.claims()
    world.account()
    world.serve(engine={"extraArgs": ["--max-num-seqs=6"]})
    world.start_engines()
    return world


def change(world: World, **fields: Any) -> None:
    world.api.merge(KIND, "run", {"spec": fields}, namespace=world.namespace)


def config_of(world: World) -> str:
    return str(world.get("ConfigMap", "run-config")["data"]["config.json"])


def test_shards_are_one_indexed_job_and_the_one_that_scored_tells_the_result(serving: World) -> None:
    serving.benchmark(shards=3, concurrency=6)
    job = serving.wait_job("run", "run")
    assert job["spec"]["completionMode"] == "Indexed"
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (3, 3)
    assert '"shards":3' in config_of(serving)
    eventually(lambda: len(serving.pods(job)) == 3, what="three pods")
    serving.end_well(job)
    serving.end_well(job, results=RESULTS, target={"servedName": "base"})
    serving.end_well(job)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    assert serving.get(KIND, "run")["status"]["results"]["mean"] == "0.5"


def test_lost_result_of_a_shard_is_read_by_running_the_job_again(serving: World, operator: OperatorProcess) -> None:
    serving.benchmark(shards=2)
    job = serving.wait_job("run", "run")
    eventually(lambda: len(serving.pods(job)) == 2, what="two pods")
    operator.kill()
    serving.end_well(job, results=RESULTS)
    scored = next(pod for pod in serving.pods(job) if pod["status"].get("phase") == "Succeeded")
    serving.end_well(job)
    eventually(lambda: serving.get("Job", job["metadata"]["name"])["status"].get("succeeded") == 2, what="complete")
    serving.api.delete("Pod", scored["metadata"]["name"], namespace=serving.namespace)
    operator.start()
    again = eventually(
        lambda: next((one for one in serving.jobs("run", kind="benchmark-run") if _uid(one) != _uid(job)), None),
        what="another Job",
    )
    for _ in range(2):
        serving.end_well(again, results=RESULTS, adopted=True)
    serving.wait_reason(KIND, "run", "Adopted", condition="Complete")


def test_no_more_trials_at_a_time_than_the_server_works_on(serving: World) -> None:
    serving.benchmark(concurrency=64, shards=8)
    job = serving.wait_job("run", "run")
    assert '"concurrency":6' in config_of(serving)
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (8, 6)
    told = serving.wait_reason(KIND, "run", "Running")["message"]
    assert "6 trials at a time instead of spec.concurrency 64" in told
    assert "--max-num-seqs 6, 1 ready replicas" in told


def test_progress_reaches_status_and_series_and_the_series_end_with_the_run(
    serving: World, operator: OperatorProcess
) -> None:
    serving.benchmark()
    job = serving.wait_job("run", "run")
    pod = eventually(lambda: serving.pods(job), what="a pod")[0]
    counts = {"passed": 3, "failed": 2, "void": 1, "running": 2, "etaSeconds": 40}
    body = {"phase": "Trials", "step": 6, "maxSteps": 20, **counts}
    path = f"benchmarkruns/{serving.namespace}/run"
    assert operator.report(path, token=serving.pod_token(pod), body=body) == 202
    progress = eventually(lambda: serving.get(KIND, "run")["status"].get("progress"), what="progress")
    progress.pop("updatedAt")
    assert progress == {"phase": "Trials", "finished": 6, "total": 20, **counts}
    counts |= {"waiting": 12}
    labels = {"namespace": serving.namespace}
    for state in ("passed", "failed", "void", "running", "waiting"):
        assert operator.metric("whetstone_benchmarkrun_trials", **labels, state=state) == counts[state]
    assert operator.metric("whetstone_benchmarkrun_eta_seconds", **labels) == 40
    serving.end_well(job, results=RESULTS)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")
    gone = ("whetstone_benchmarkrun_trials", {**labels, "state": "passed"})
    eventually(lambda: operator.metric(gone[0], **gone[1]) == 0, what="no series of the run")
    assert serving.get(KIND, "run")["status"]["progress"] == {"phase": "Score", "finished": 8, "total": 8, "void": 0}


def test_what_may_change_reaches_the_run_and_the_measured_version_stays(serving: World) -> None:
    serving.benchmark(resources=SMALL, activeDeadlineSeconds=3000)
    job = serving.wait_job("run", "run")
    name = job["metadata"]["name"]
    change(serving, activeDeadlineSeconds=6000)
    eventually(lambda: serving.get("Job", name)["spec"].get("activeDeadlineSeconds") == 6000, what="the deadline")
    change(serving, resources=LARGE)

    def moved(job: dict[str, Any]) -> dict[str, Any]:
        return eventually(
            lambda: next((one for one in serving.jobs("run", kind="benchmark-run") if _uid(one) != _uid(job)), None),
            what="another Job",
        )

    second = moved(job)
    assert second["spec"]["template"]["spec"]["containers"][0]["resources"] == LARGE
    measured = "whetstone.dev/measured-target"
    assert second["metadata"]["annotations"][measured] == job["metadata"]["annotations"][measured]
    eventually(lambda: serving.pods(second), what="a pod")
    change(serving, queueName="team")
    third = moved(second)
    assert third["spec"]["suspend"] is True
    assert third["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    serving.wait_reason(KIND, "run", "Queued", condition="QuotaReserved")


def test_suspended_run_has_no_pods_and_goes_on(serving: World) -> None:
    serving.benchmark(shards=2)
    job = serving.wait_job("run", "run")
    eventually(lambda: len(serving.pods(job)) == 2, what="two pods")
    change(serving, suspend=True)
    serving.wait_reason(KIND, "run", "Suspended")
    eventually(
        lambda: not [pod for pod in serving.pods(job) if "deletionTimestamp" not in pod["metadata"]], what="none"
    )
    change(serving, suspend=False)
    eventually(lambda: len(serving.pods(job)) == 2, what="two pods again")
    for _ in range(2):
        serving.end_well(job, results=RESULTS)
    serving.wait_reason(KIND, "run", "Succeeded", condition="Complete")


def _uid(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["uid"])
