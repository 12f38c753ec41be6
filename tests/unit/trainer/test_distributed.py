"""Training by several processes: one adapter comes out, whatever happens to any of them."""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.preferences import prefer
from support.trainer_job import Job
from whetstone_api.adapter_artifact import Lineage
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR
from whetstone_artifacts.folders import adapter_digest
from whetstone_trainer.__main__ import EXIT_RETRY

pytestmark = pytest.mark.torch

MakeJob = Callable[[str], Job]
PAIR = {"nodes": 1, "processesPerNode": 2}


def worker(launcher: int, *, rank: int) -> int:
    """Return the id of the launcher's process that is of this rank."""
    variable = f"RANK={rank}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher and variable in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no process of rank {rank} under {launcher}")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that two processes of one pod have ended undisturbed: 9 steps, checkpoints at 2, 4, 6, 8 and 9."""
    job = Job(tmp_path_factory.mktemp("pair"), model_folder)
    job.values["world"] = PAIR
    assert job.run("train") == 0, job.log
    return job


def test_two_processes_publish_one_adapter(pair: Job) -> None:
    assert pair.report.result["adapter"]["uri"] == "pvc://adapters/a"
    lineage = Lineage.model_validate_json((pair.output / "lineage.json").read_bytes())
    assert lineage.recipe["distributed"] == {"ranks": 2}
    clock = json.loads((pair.workspace / "checkpoints" / "checkpoint-9" / "clock.json").read_bytes())
    assert clock["ranks"] == 2
    states = sorted(path.name for path in (pair.workspace / "checkpoints" / "checkpoint-9").glob("rng_state*"))
    assert states == ["rng_state_0.pth", "rng_state_1.pth"]


@pytest.mark.long
def test_two_processes_learn_what_one_learns_from_the_same_rows(pair: Job, make_job: MakeJob) -> None:
    """Without dropout, the steps of two processes are those of one, but for the order of sums."""
    losses = []
    for name, world in (("one", None), ("two", PAIR)):
        job = make_job(name)
        job.values["lora"]["dropout"] = "0"
        job.values["plan"] = {"microBatchSize": 1}
        if world:
            job.values["world"] = world
        assert job.run("train") == 0, job.log
        losses.append([float(loss) for loss in re.findall(r"'loss': '?([0-9.e+-]+)", job.log)])
    one, two = losses
    assert len(one) == 9
    assert two == pytest.approx(one, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "rank"), [("after-step:3", "1"), ("mid-checkpoint", "0"), ("after-step:7", "0"), ("before-publish", "0")]
)
def test_one_process_killed_and_all_resumed_gives_the_same_bytes(pair: Job, job: Job, place: str, rank: str) -> None:
    job.values["world"] = PAIR
    environment = {"WHETSTONE_FAILPOINT": place, "WHETSTONE_FAILPOINT_RANK": rank}
    assert job.run("train", **environment) == EXIT_RETRY, job.log
    assert job.report.message == f"rank {rank} died with exit code -9"
    assert not job.output.exists()
    assert job.run("train", **environment) == 0, job.log
    assert adapter_digest(job.output) == adapter_digest(pair.output)


@pytest.mark.long
def test_sigterm_to_one_process_stops_all_after_the_same_step(job: Job) -> None:
    job.values["world"] = PAIR
    job.values["hyperparameters"] = {"maxSteps": 100000, "batchSize": 4, "learningRate": "1e-3"}
    job.values["checkpoint"]["everySteps"] = 100000
    process = job.start("train")
    assert process.stdout is not None
    for line in process.stdout:
        if "'loss'" in line:
            break
    os.kill(worker(process.pid, rank=1), signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == EXIT_STOPPED
    step = re.search(r"after step (\d+) of 100000", job.report.message)
    assert step is not None
    folder = job.workspace / "checkpoints" / f"checkpoint-{step[1]}"
    assert (folder / "manifest.json").is_file()
    assert len(list(folder.glob("rng_state_*"))) == 2


@pytest.mark.long
def test_wrong_input_of_any_process_ends_the_training_for_good(job: Job) -> None:
    job.values["world"] = PAIR
    job.values["hyperparameters"]["learningRate"] = "1e30"
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "TrainingDiverged"


@pytest.mark.long
def test_checkpoint_of_another_number_of_processes_is_refused(pair: Job, job: Job) -> None:
    shutil.copytree(pair.workspace, job.workspace)
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "CheckpointMismatch"
    assert "was saved by 2 processes, and 1 are to go on" in job.report.message


def test_batch_that_cannot_be_shared_evenly_is_refused(job: Job) -> None:
    job.values["world"] = {"nodes": 3, "processesPerNode": 1}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert job.report.reason == "InvalidSpec"
    assert "spec.hyperparameters.batchSize is 4" in job.report.message
    assert "choose a multiple of 3" in job.report.message
    job.values["world"] = PAIR
    job.values |= {"hyperparameters": {"batchSize": 12}, "plan": {"microBatchSize": 4}}
    assert job.run("prepare") == EXIT_USER_ERROR
    assert "choose a divisor of 6" in job.report.message


def test_published_adapter_is_adopted_by_a_pod_that_comes_alone(pair: Job, make_job: MakeJob) -> None:
    job = make_job("late")
    job.values["world"] = {"nodes": 2, "processesPerNode": 1}
    job.values["outputPath"] = str(pair.output)
    assert job.run("train", JOB_COMPLETION_INDEX="1", WHETSTONE_RENDEZVOUS="nowhere.invalid") == 0, job.log
    assert job.report.reason == "Adopted"


def test_pod_without_index_does_not_train_alone(job: Job) -> None:
    job.values["world"] = {"nodes": 2, "processesPerNode": 1}
    assert job.run("train") == EXIT_USER_ERROR
    assert job.report.reason == "WorldMismatch"
    assert "spec.distributed.nodes is 2" in job.report.message


def test_worker_of_another_world_does_not_train(job: Job) -> None:
    job.values["world"] = PAIR
    reports = job.folder / "reports"
    reports.mkdir()
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert job.run("train", WHETSTONE_REPORTS=str(reports), **alone) == EXIT_USER_ERROR
    assert "asks for 2 processes" in job.log


def test_two_pods_train_together(pair: Job, job: Job) -> None:
    """Two launchers as two pods of an Indexed Job: the same ranks give the same bytes, wherever they run."""
    job.values["world"] = {"nodes": 2, "processesPerNode": 1}
    meeting = {"WHETSTONE_RENDEZVOUS": "localhost", "GLOO_SOCKET_IFNAME": "lo"}
    second = job.start("train", JOB_COMPLETION_INDEX="1", termination="second", **meeting)
    assert job.run("train", JOB_COMPLETION_INDEX="0", **meeting) == 0, job.log
    log, _ = second.communicate(timeout=60)
    assert second.returncode == 0, log
    assert "rank 1 of 2 ended; rank 0 reports" in (job.folder / "second").read_text()
    assert adapter_digest(job.output) == adapter_digest(pair.output)


@pytest.mark.long
def test_pod_that_loses_the_others_ends_to_be_tried_again(pair: Job, job: Job) -> None:
    job.values["world"] = {"nodes": 2, "processesPerNode": 1}
    meeting = {"WHETSTONE_RENDEZVOUS": "localhost", "GLOO_SOCKET_IFNAME": "lo"}
    dies = {"WHETSTONE_FAILPOINT": "after-step:3", "WHETSTONE_FAILPOINT_RANK": "1"}
    second = job.start("train", JOB_COMPLETION_INDEX="1", termination="second", **meeting, **dies)
    assert job.run("train", JOB_COMPLETION_INDEX="0", **meeting, **dies) == EXIT_RETRY, job.log
    second.communicate(timeout=60)
    assert second.returncode == EXIT_RETRY
    assert "rank 1 died" in (job.folder / "second").read_text()


@pytest.mark.parametrize("strategy", ["FSDP", "ZeRO2", pytest.param("ZeRO3", marks=pytest.mark.long)])
def test_sharded_base_gives_the_same_adapter(pair: Job, job: Job, strategy: str) -> None:
    """Each of two processes holds half of the base; killed and resumed, they end with the bytes of two whole ones."""
    job.values["world"] = {**PAIR, "strategy": strategy}
    assert job.run("train", WHETSTONE_FAILPOINT="after-step:3", WHETSTONE_FAILPOINT_RANK="1") == EXIT_RETRY, job.log
    assert job.run("train") == 0, job.log
    shares = re.findall(r"holds (\d+) of the base's (\d+) parameters", job.log)
    assert len(shares) == 2
    assert all(int(held) <= 0.51 * int(whole) for held, whole in shares)
    assert adapter_digest(job.output) == adapter_digest(pair.output)


@pytest.mark.long
def test_preference_pairs_are_shared_too(make_job: MakeJob) -> None:
    digests = []
    for strategy in ("DDP", "FSDP"):
        job = prefer(make_job(strategy.lower()))
        job.values["world"] = {**PAIR, "strategy": strategy}
        assert job.run("train") == 0, job.log
        digests.append(adapter_digest(job.output))
    assert digests[0] == digests[1]
