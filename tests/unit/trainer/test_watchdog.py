"""A training that hangs tells where, before it is stopped, and goes on afterwards."""

import re
import threading

import pytest
from support.trainer_job import Job
from whetstone_trainer.watchdog import Watchdog

LIMIT = 10


@pytest.mark.torch
def test_step_that_hangs_is_told_with_all_stacks(job: Job) -> None:
    job.values["stallSeconds"] = LIMIT
    process = job.start("train", WHETSTONE_FAILPOINT="hang:after-step:3")
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        # The hook in which step 3 hangs comes before that which reports it.
        if "seconds after step 2;" in line:
            break
    process.kill()
    process.communicate(timeout=60)
    log = "".join(lines)
    assert re.search(r"^Thread 0x\w+ .*most recent call first", log, re.MULTILINE)
    assert re.search(r'File ".*failpoints\.py", line \d+ in failpoint', log)
    assert job.report.reason == "TrainingStalled"
    assert job.report.outcome == "Retry"
    assert re.search(r"^no step for \d+ seconds after step 2; the main thread is at .*failpoint", job.report.message)
    job.values["stallSeconds"] = None
    assert job.run("train") == 0, job.log
    assert "going on from" in job.log


def test_word_of_a_stall_is_taken_back_with_the_next_step() -> None:
    told: list[str | None] = []
    spoken = threading.Event()

    def tell(words: str | None) -> None:
        told.append(words)
        spoken.set()

    watchdog = Watchdog(0.05, tell)
    watchdog.step(4)
    assert spoken.wait(30)
    watchdog.step(5)
    watchdog.rest()
    assert told[0] is not None
    assert "after step 4; the main thread is at" in told[0]
    assert told[1] is None
