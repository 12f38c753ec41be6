"""What a run tells of its suite: tasks that were refused, images that were pulled elsewhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from unit.agent.test_run import artifact_of, run
from whetstone_agent.admission import admit_tasks
from whetstone_agent.harness import EnvironmentChoice, job_settings
from whetstone_agent.recipe import recipe_digest
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.vocabulary import TaskRefusal

type Configure = Callable[..., BenchmarkConfig]
NOP = {"name": "nop"}


def suite(**fields: Any) -> dict[str, Any]:
    return {"dataset": {"uri": "pvc://data/tasks"}, **fields}


async def test_refused_tasks_are_told_in_the_report_and_listed_in_the_results(
    configure: Configure, local: EnvironmentChoice, dataset: Path
) -> None:
    (dataset / "task-1" / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    config = configure(agent=NOP, suite=suite(refused="Exclude"))
    report = await run(config, local)
    assert report.result["results"]["tasks"] == 3
    assert report.result["results"]["refused"] == [{"reason": "Compose", "count": 1, "names": ["task-1"]}]
    (refused,) = artifact_of(config).refused
    assert (refused.task, refused.reason) == ("task-1", TaskRefusal.COMPOSE)
    assert "docker-compose.yaml" in refused.message


async def test_runs_with_other_images_by_a_map_are_not_comparable_and_by_a_prefix_they_are(
    configure: Configure, local: EnvironmentChoice
) -> None:
    baseline = configure(name="baseline", agent=NOP)
    await run(baseline, local)
    fields = {"agent": NOP, "baselineName": "baseline", "baselinePath": baseline.output_path}
    mapped = configure(**fields, name="mapped", suite=suite(images={"map": {"task:1": "other:2"}}))
    report = await run(mapped, local)
    assert report.result["comparison"]["verdict"] == "NotComparable"
    assert "the images (spec.suite.harbor.images.map)" in report.result["comparison"]["message"]
    assert artifact_of(mapped).images["task-0"] == {"environment": "other:2"}
    mirrored = configure(**fields, name="mirrored", suite=suite(images={"prefix": "reg/m"}))
    report = await run(mirrored, local)
    assert report.result["comparison"]["verdict"] == "Inconclusive"
    assert artifact_of(mirrored).images["task-0"] == {"environment": "reg/m/library/task:1"}


def test_a_prefix_leaves_the_recipe_as_it_is_and_a_map_does_not(configure: Configure, dataset: Path) -> None:
    def digest(images: object) -> str:
        config = configure(suite=suite(images=images))
        return recipe_digest(config, admit_tasks(dataset, config.suite).tasks)

    assert digest(None) == digest({"prefix": "reg/m"}) == digest({"map": {"unused:1": "other:2"}})
    assert digest({"map": {"task:1": "other:2"}}) != digest(None)


def test_trial_pods_are_told_which_image_to_pull(configure: Configure, dataset: Path) -> None:
    config = configure(suite=suite(images={"prefix": "reg/m"}))
    options = job_settings(config, admit_tasks(dataset, config.suite).tasks, EnvironmentChoice())["environment"]
    folder = str(dataset / "task-0" / "environment")
    assert options["kwargs"]["images"][folder] == "reg/m/library/task:1"
