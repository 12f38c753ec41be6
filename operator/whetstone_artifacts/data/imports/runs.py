"""Trials of finished runs, as the run itself would have collected them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from whetstone_artifacts.data.imports.taken import Row, Skipped
from whetstone_artifacts.episodes import read_episodes
from whetstone_artifacts.report.page import read_results


def from_runs(folders: Sequence[Path], minimum_reward: float) -> Iterator[Row | Skipped]:
    """Yield the conversations of a run's trials, with their reward and their task.

    Args:
        folders: Folders of results.
        minimum_reward: Lowest reward of a trial, or of its step, that is taken.

    Raises:
        ArtifactError: A folder holds no results.
    """
    for folder in folders:
        for task in read_results(folder).tasks:
            for trial in task.trials:
                place = f"trial {trial.trial}"
                if trial.reward is None:
                    yield Skipped(place=place, problem="is void: what spoiled it is no doing of the model")
                    continue
                episodes = read_episodes(folder, trial)
                if not episodes:
                    yield Skipped(place=place, problem="left no conversation that can be read")
                for episode in episodes:
                    if episode.reward < minimum_reward:
                        yield Skipped(place=place, problem=f"has reward {episode.reward:g}, below {minimum_reward:g}")
                        continue
                    tools = {"tools": episode.tools} if episode.tools else {}
                    about = {"reward": episode.reward, "trial": trial.trial, "taskName": task.task}
                    yield {"messages": episode.messages, **tools, "task": task.digest, **about}
