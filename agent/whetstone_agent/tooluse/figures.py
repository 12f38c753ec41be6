"""What a run with a `toolUse` suite tells beyond scores."""

from collections import Counter
from collections.abc import Sequence

from whetstone_api.run_artifact import ScenarioScore, TaskScore, ToolUseFigures
from whetstone_artifacts.figures import at_confidence, mean, mean_intervals, task_means

from whetstone_agent.tooluse.selection import InstanceTask
from whetstone_agent.tooluse.trials import TrialRecord


def tool_use_figures(
    records: Sequence[TrialRecord], *, scores: Sequence[TaskScore], tasks: Sequence[InstanceTask]
) -> ToolUseFigures:
    """Return the figures.

    Args:
        records: The trials that are there.
        scores: The same by task.
        tasks: The instances.
    """
    scenarios = {task.name: _scenario(task) for task in tasks}
    by_scenario: dict[str, list[TaskScore]] = {}
    for score in scores:
        by_scenario.setdefault(scenarios[score.task], []).append(score)
    episodes = [one.episode for one in records]
    steps = sum(one.total_time_steps for one in episodes)
    helped = sum(sum(one.expert_assistance.tracker) for one in episodes)
    return ToolUseFigures(
        scenarios=[_scored(name, some) for name, some in sorted(by_scenario.items())],
        ends=dict(sorted(Counter(str(one.end) for one in episodes).items())),
        steps=dict(sorted(Counter(str(step.category) for one in episodes for step in one.steps).items())),
        agent_steps=steps - helped,
        expert_steps=helped,
        overseer_silent=sum(one.overseer_silent for one in episodes),
        witness_silent=sum(one.witness_silent for one in episodes),
    )


def _scenario(task: InstanceTask) -> str:
    instance = task.instance
    return f"{instance.tool_availability}, {'answerable' if instance.answerable else 'not answerable'}"


def _scored(name: str, scores: Sequence[TaskScore]) -> ScenarioScore:
    means = list(task_means(scores).values())
    return ScenarioScore(
        scenario=name,
        tasks=len(means),
        mean=round(mean(means), 6),
        interval=at_confidence(mean_intervals(scores)),
    )
