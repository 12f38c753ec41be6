"""A run that can start, and this process's part of it."""

from dataclasses import dataclass
from pathlib import Path

from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.jobs import BenchmarkConfig
from whetstone_api.run_artifact import RunArtifact

from whetstone_agent.shards import Shard
from whetstone_agent.tasks import AdmittedTask


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run that can start: its tasks are admitted."""

    config: BenchmarkConfig
    tasks: list[AdmittedTask]
    refused: list[RefusedTask]
    recipe: str
    baseline: RunArtifact | None
    shard: Shard

    @property
    def output(self) -> Path:
        """Folder of the result."""
        return Path(self.config.output_path)

    @property
    def own_tasks(self) -> list[AdmittedTask]:
        """Tasks of this shard."""
        return self.shard.tasks(self.tasks)

    @property
    def folder(self) -> Path:
        """Job folder of this shard."""
        return self.shard.folder(self.output, self.recipe)

    @property
    def folders(self) -> list[Path]:
        """Job folders of all shards."""
        return [shard.folder(self.output, self.recipe) for shard in self.shard.all()]
