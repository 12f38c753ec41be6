"""What tests of data tools share."""

import json
from pathlib import Path

import pytest
from support.run_results import run_artifact
from whetstone_api.run_artifact import TaskScore, TrialScore


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    """Results of a run as Harbor and the runner leave them: a solved trial, a failed one, and one that is void."""
    folder = tmp_path / "results"
    scores = [
        TaskScore(
            task="one",
            digest="sha256:1",
            trials=[TrialScore(trial="one__a", reward=1.0), TrialScore(trial="one__b", reward=0.0)],
        ),
        TaskScore(task="two", digest="sha256:2", trials=[TrialScore(trial="two__a")]),
    ]
    for score in scores:
        for trial in score.trials:
            steps = [
                {"source": "user", "message": f"Do {score.task}"},
                {
                    "source": "agent",
                    "message": "I look.",
                    "tool_calls": [{"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "/"}}],
                    "observation": {"results": [{"source_call_id": "c1", "content": "a"}]},
                },
                {"source": "agent", "message": "done"},
            ]
            place = folder / "harbor" / "job" / trial.trial / "agent"
            place.mkdir(parents=True)
            (place / "trajectory.json").write_text(json.dumps({"steps": steps}))
    (folder / "results.json").write_text(run_artifact(scores).to_json())
    return folder
