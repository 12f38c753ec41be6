"""Rows as a BenchmarkRun collects them go through the real Prepare."""

import pytest
from support.trainer_job import Job
from whetstone_trainer.prepare import prepare_data
from whetstone_trainer.recipe import read_recipe

pytestmark = pytest.mark.torch
START = [{"role": "system", "content": "s"}, {"role": "user", "content": "Create the file done_0.txt."}]
SOLVED = [
    {"role": "assistant", "content": "```bash\ntouch done_0.txt\n```"},
    {"role": "user", "content": "Exit code: 0\nOutput:"},
    {"role": "assistant", "content": "DONE"},
]
FAILED = [{"role": "assistant", "content": "I would rather not."}]
TOLD = {"reward": 1.0, "trial": "task-0__a", "task": "sha256:0", "taskName": "task-0"}


def test_conversations_are_learned_and_their_tasks_kept(job: Job) -> None:
    job.write([{"messages": START + SOLVED, **TOLD}])
    report = prepare_data(job.config, read_recipe(job.config))
    assert (report.dataset.rows, report.task_digests) == (1, ["sha256:0"])
    learned = "".join(part.text for part in report.samples[0].segments if part.learned)
    assert "touch done_0.txt" in learned
    assert "Exit code" not in learned


def test_pairs_are_prepared_as_trajectories(job: Job) -> None:
    job.write([{"prompt": START, "chosen": SOLVED, "rejected": FAILED, "rejectedTrial": "task-0__b", **TOLD}])
    job.values |= {"method": "DPO", "preference": {"granularity": "Trajectory"}}
    report = prepare_data(job.config, read_recipe(job.config))
    assert (report.dataset.rows, report.task_digests) == (1, ["sha256:0"])
