"""The estimate of a training on a CPU beside what one takes there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.trainer_job import ROOT

pytestmark = pytest.mark.torch
ERROR = 0.1
"""Largest error of the estimate, as docs/training-memory.md says."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Trainings of a small model, each in a process of its own."""
    output = tmp_path_factory.mktemp("cpu") / "cpu.json"
    command = [sys.executable, ROOT / "bench" / "training_cpu.py", "--sets", "small", "--output", output]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    cases: list[dict[str, Any]] = json.loads(Path(output).read_bytes())["small"]
    return cases


def test_peak_is_estimated_within_the_stated_error(measured: list[dict[str, Any]]) -> None:
    errors = {one["what"]: sum(one["estimated"].values()) / one["peakBytes"] - 1 for one in measured}
    assert set(errors) == {"8 x 256", "8 x 256, checkpointing"}
    assert all(abs(error) <= ERROR for error in errors.values()), errors
