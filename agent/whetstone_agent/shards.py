"""How the tasks and the concurrency of a run are dealt out to the pods that work on it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whetstone_api.jobs import RunConfig
from whetstone_api.run_artifact import HARBOR_FOLDER

from whetstone_agent.tasks import ScoredTask

INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
"""In it Kubernetes tells each pod of an Indexed Job which one it is."""


@dataclass(frozen=True)
class Shard:
    """One of the pods that share a run."""

    index: int = 0
    count: int = 1

    @classmethod
    def of(cls, config: RunConfig, environment: Mapping[str, str] = os.environ) -> "Shard":
        """Return which shard this process is."""
        return cls(index=int(environment.get(INDEX_VARIABLE, "0")), count=config.shards)

    def tasks[T: ScoredTask](self, tasks: Sequence[T]) -> list[T]:
        """Return the shard's own tasks: every `count`-th by name, each with all of its attempts."""
        return sorted(tasks, key=lambda task: task.name)[self.index :: self.count]

    def concurrency(self, total: int) -> int:
        """Return how many trials this shard may run at a time; all shards together run `total`."""
        return max(1, total // self.count + (self.index < total % self.count))

    def folder(self, output: Path, recipe: str, *, under: str = HARBOR_FOLDER) -> Path:
        """Return the folder of the shard's Harbor job. Neither concurrency nor any other setting is in its name.

        Args:
            output: Folder of the results.
            recipe: Digest of the recipe.
            under: Folder of this kind of suite.
        """
        return output / under / f"{folder_prefix(recipe)}{self.index}-of-{self.count}"

    def all(self) -> list["Shard"]:
        """Return all shards of the run."""
        return [Shard(index=index, count=self.count) for index in range(self.count)]


def folder_prefix(recipe: str) -> str:
    """Return what the names of all job folders of a recipe begin with."""
    return f"{recipe.removeprefix('sha256:')[:8]}-"
