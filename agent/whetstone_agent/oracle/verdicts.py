"""What tasks' own solutions scored, kept for every run that meets the same task under the same conditions.

A verdict is a file, named by what it depends on: the task's files, its images, the sandbox. There is no index, so runs
and shards that write at a time are in nobody's way; who runs a solution holds a lock on its verdict meanwhile.
"""

import json
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.benchmark_oracle import OracleVerdict
from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import BenchmarkConfig
from whetstone_artifacts.lock import output_lock
from whetstone_artifacts.replacing import replacing

from whetstone_agent.recipe import environment_identity
from whetstone_agent.tasks import AdmittedTask

_NAME_DIGITS = 32


def environment_digest(config: BenchmarkConfig) -> str:
    """Return the digest of what beside a task and its images may change whether its solution solves it."""
    resources = config.suite.trial_resources
    return canonical_digest(
        {
            **environment_identity(config.suite.environment),
            "trialResources": resources.to_wire() if resources else None,
            "harness": f"harbor {version('harbor')}",
        }
    )


class Verdicts:
    """The verdicts' folder, as one run sees it.

    Args:
        folder: The folder; made when the first verdict is kept.
        environment: From `environment_digest`.
    """

    def __init__(self, folder: Path, environment: str) -> None:
        self._folder = folder
        self._environment = environment

    def find(self, task: AdmittedTask) -> OracleVerdict | None:
        """Return the verdict on a task; None where there is none, or its file cannot be read."""
        try:
            return OracleVerdict.model_validate_json(self._path(task).read_bytes())
        except (OSError, ValidationError):
            return None

    def keep(self, task: AdmittedTask, verdict: OracleVerdict) -> None:
        """Write the verdict on a task.

        Raises:
            OSError: It cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._path(task)) as temporary:
            temporary.write_text(json.dumps(json.loads(verdict.to_json()), indent=1) + "\n")

    def lock(self, task: AdmittedTask) -> AbstractContextManager[Path]:
        """Hold the right to run a task's solution; the kernel gives it back when its holder dies.

        Raises:
            OutputLockedError: Somebody else is running it.
        """
        return output_lock(self._path(task), wait_seconds=0)

    @property
    def environment(self) -> str:
        """Digest of the sandbox that the verdicts are about."""
        return self._environment

    def _path(self, task: AdmittedTask) -> Path:
        content = {"task": task.digest, "images": dict(task.images), "environment": self._environment}
        return self._folder / f"{canonical_digest(content).removeprefix('sha256:')[:_NAME_DIGITS]}.json"
