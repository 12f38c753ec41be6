"""Preference pairs for the tests, and jobs that learn from them."""

from typing import Any

from support.trainer_job import Job

CALL = {"type": "function", "function": {"name": "ls", "arguments": {"path": "/"}}}
"""A call that a trajectory makes."""


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content, **more}


def pair_row(question: str, chosen: Any, rejected: Any, **more: Any) -> dict[str, Any]:
    """A pair with an explicit prompt."""
    return {"prompt": [said("system", "s"), said("user", question)], "chosen": chosen, "rejected": rejected, **more}


def prefer(job: Job, **preference: Any) -> Job:
    """Turn a job into one that learns from pairs."""
    job.write([pair_row(f"q{number}", f"a{number}" * 3, f"b{number}", task=f"sha256:{number}") for number in range(8)])
    job.values["method"] = "DPO"
    job.values["preference"] = preference
    job.values["hyperparameters"] = {"epochs": 3, "batchSize": 4, "learningRate": "1e-2"}
    return job
