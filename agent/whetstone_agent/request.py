"""A run that can start, and this process's part of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.jobs import BenchmarkConfig, RunConfig
from whetstone_api.run_artifact import HARBOR_FOLDER, RunArtifact

from whetstone_agent.shards import Shard
from whetstone_agent.tasks import AdmittedTask, ScoredTask


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run that can start, whatever its suite."""

    under: ClassVar[str]
    """Folder in the output that the folders of trials lie in."""

    config: RunConfig
    tasks: Sequence[ScoredTask]
    recipe: str
    baseline: RunArtifact | None
    shard: Shard

    @property
    def output(self) -> Path:
        """Folder of the result."""
        return Path(self.config.output_path)

    @property
    def folder(self) -> Path:
        """Job folder of this shard."""
        return self.shard.folder(self.output, self.recipe, under=self.under)

    @property
    def folders(self) -> list[Path]:
        """Job folders of all shards."""
        return [shard.folder(self.output, self.recipe, under=self.under) for shard in self.shard.all()]

    @property
    def others(self) -> list[Path]:
        """Job folders of the other shards."""
        return [folder for folder in self.folders if folder != self.folder]


@dataclass(frozen=True, kw_only=True)
class Request(RunRequest):
    """A run of Harbor tasks that are admitted. Which of them their own solutions rule out is no part of its recipe."""

    under = HARBOR_FOLDER

    config: BenchmarkConfig
    tasks: list[AdmittedTask]
    refused: list[RefusedTask]
    excluded: frozenset[str] = field(default_factory=frozenset)
    """Names of tasks that are admitted and yet not run, as far as this shard knows."""

    def without(self, refused: Sequence[RefusedTask]) -> "Request":
        """Return the run without some tasks."""
        names = self.excluded | {one.task for one in refused}
        both = {one.task: one for one in (*self.refused, *refused)}
        return replace(self, excluded=frozenset(names), refused=[both[name] for name in sorted(both)])

    @property
    def run_tasks(self) -> list[AdmittedTask]:
        """Tasks that are run."""
        return [task for task in self.tasks if task.name not in self.excluded]

    @property
    def own_tasks(self) -> list[AdmittedTask]:
        """Tasks that this shard runs; what others exclude does not shift them from shard to shard."""
        return [task for task in self.shard.tasks(self.tasks) if task.name not in self.excluded]
