"""Training on a machine that fails: what is lost is the steps since the newest whole checkpoint, and nothing else."""

import random
import signal
from pathlib import Path

import pytest
from support.trainer_job import Job
from whetstone_artifacts.folders import adapter_digest
from whetstone_trainer.__main__ import EXIT_RETRY

pytestmark = [pytest.mark.torch, pytest.mark.long]
SEEDED = sorted(random.Random(5).sample(range(1, 9), 3))
"""Three of the nine steps."""
ADAPTER_FITS_NOT = 15_000
"""Bytes: more than a report takes, less than the adapter."""
ADAPTER_FITS = 30_000
"""Bytes: the adapter of a checkpoint is smaller, its optimizer's state is not."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Job:
    """A job that ran to its end without a disturbance: 9 steps, checkpoints at 2, 4, 6, 8 and 9."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), model_folder)
    assert job.run("train") == 0, job.log
    return job


def test_kill_at_any_step_costs_nothing_but_time(undisturbed: Job, job: Job) -> None:
    for step in SEEDED:
        assert job.run("train", WHETSTONE_FAILPOINT=f"after-step:{step}") == -signal.SIGKILL
    assert job.run("train") == 0, job.log
    assert adapter_digest(job.output) == adapter_digest(undisturbed.output)


def test_disk_that_is_full_while_saving_leaves_the_older_checkpoint(undisturbed: Job, job: Job) -> None:
    assert job.run("train", WHETSTONE_FAILPOINT="after-checkpoint:4") == -signal.SIGKILL
    assert job.run("train", largest_file=ADAPTER_FITS) == EXIT_RETRY, job.log
    assert job.report.reason == "DiskFull"
    assert f"{job.workspace}/checkpoints" in job.report.message
    kept = sorted(path.name for path in (job.workspace / "checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-4"]
    assert job.run("train") == 0, job.log
    assert "going on from" in job.log
    assert adapter_digest(job.output) == adapter_digest(undisturbed.output)


def test_disk_that_is_full_while_publishing_costs_no_training(undisturbed: Job, job: Job) -> None:
    assert job.run("train", WHETSTONE_FAILPOINT="before-publish") == -signal.SIGKILL
    assert job.run("train", largest_file=ADAPTER_FITS_NOT) == EXIT_RETRY, job.log
    assert job.report.reason == "DiskFull"
    assert job.report.message.startswith(f"no room for the adapter in {job.output.parent} (")
    assert not job.output.exists()
    assert job.run("train") == 0, job.log
    assert "'loss'" not in job.log
    assert adapter_digest(job.output) == adapter_digest(undisturbed.output)
    assert [path.name for path in job.output.parent.glob(".a.partial-*")] == []
    assert job.run("train") == 0, job.log
    assert job.report.reason == "Adopted"
