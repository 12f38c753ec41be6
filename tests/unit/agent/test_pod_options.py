"""What a run's spec makes of its trials' pods."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whetstone_agent.admission import admit_tasks
from whetstone_agent.environment import errors
from whetstone_agent.harness import EnvironmentChoice, job_settings
from whetstone_agent.recipe import recipe_digest
from whetstone_api.jobs import BenchmarkConfig

Configure = Callable[..., BenchmarkConfig]


def settings(config: BenchmarkConfig) -> dict[str, Any]:
    """Return Harbor's settings for a run in pods."""
    tasks = admit_tasks(Path(config.dataset_path), config.suite).tasks
    return job_settings(config, tasks, EnvironmentChoice())


def suite(**environment: Any) -> dict[str, Any]:
    """Return a suite with a sandbox of its own."""
    return {"dataset": {"uri": "pvc://data/tasks"}, "environment": environment}


def test_the_limits_of_a_start_come_from_the_spec(configure: Configure) -> None:
    options = settings(configure(suite=suite(queueSeconds=7200, startSeconds=90)))["environment"]["kwargs"]
    assert (options["queue_seconds"], options["start_seconds"]) == (7200, 90)
    assert "queue_seconds" not in settings(configure())["environment"]["kwargs"]


def test_harbors_own_limit_on_a_start_is_out_of_reach(configure: Configure) -> None:
    assert settings(configure())["environment_build_timeout_multiplier"] * 1 > 604800


@pytest.mark.parametrize("name", [*errors.TRIED_AGAIN, *errors.NOT_TRIED_AGAIN])
def test_a_trial_whose_pod_failed_is_void(configure: Configure, name: str) -> None:
    found = settings(configure())
    policy = found["override_error_policy"][name]
    assert (policy["should_grade"], policy["has_valid_reward"]) == (False, False)
    assert policy["should_retry"] is (name in errors.TRIED_AGAIN)
    assert (name in found["retry"]["include_exceptions"]) is policy["should_retry"]


def test_every_error_of_a_pod_has_its_policy() -> None:
    known = {*errors.TRIED_AGAIN, *errors.NOT_TRIED_AGAIN, "TrialsForbiddenError", "QuotaFullError"}
    assert {name for name in vars(errors) if name.endswith("Error")} == known


def test_tmux_is_for_the_agent_that_types_into_it(configure: Configure) -> None:
    assert settings(configure(agent={"name": "terminus-2"}))["environment"]["kwargs"]["tmux"] is True
    assert "tmux" not in settings(configure(agent={"name": "oracle"}))["environment"]["kwargs"]


def test_only_a_network_that_need_not_hold_is_another_recipe(configure: Configure) -> None:
    def digest(**fields: Any) -> str:
        config = configure(**fields)
        return recipe_digest(config, admit_tasks(Path(config.dataset_path), config.suite).tasks)

    plain = digest()
    assert digest(suite=suite(queueSeconds=60, startSeconds=60, networkLimits="Enforced")) == plain
    assert digest(suite=suite(networkLimits="BestEffort")) != plain
