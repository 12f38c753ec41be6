"""Each task's own solution, run before the trials of a BenchmarkRun: a task that it does not solve measures nothing."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from whetstone_api.schema import ApiModel, Rule, SignedDecimalString
from whetstone_api.source import Source
from whetstone_api.wire import WireModel

ORACLE_FOLDER = "oracle"
"""Folder in the run's output with the trials of the solutions that this run executed."""
ORACLE_PHASE = "Oracle"
"""What the progress of a run says while solutions are run."""
VERDICTS_FOLDER = "oracle-verdicts"
"""Folder of a claim in which verdicts are kept unless the run names another place."""


class WithoutSolution(StrEnum):
    """What becomes of a task that brings no solution."""

    RUN = "Run"
    """Its trials are run, and the results say that nothing vouches for it."""
    EXCLUDE = "Exclude"
    """It is refused, as a task is that its solution does not solve."""


class OracleSpec(ApiModel):
    """How the tasks of a suite are checked by their own solutions."""

    minimum_reward: SignedDecimalString = "1"
    """Lowest reward by which a solution solves its task."""
    without_solution: WithoutSolution = WithoutSolution.RUN
    """What becomes of a task that brings no solution."""
    verdicts: Source | None = None
    """Folder in which the verdicts are kept, for all runs that name it; `oracle-verdicts` in the claim of `output` when
    absent."""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.verdicts) || self.verdicts.uri.matches('^pvc://[^/]+/.+')",
            message="verdicts.uri must name a folder inside the claim, as in pvc://results/oracle-verdicts",
        ),
    )


class OracleChecked(ApiModel):
    """What the check of a suite by its own solutions found of the tasks that were run."""

    solved: int
    """Tasks that their own solutions solve here."""
    reused: int
    """Of all verdicts, those that an earlier run left."""
    without_solution: int
    """Tasks that were run though nothing vouches for them."""
    names: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=8)] | None = None
    """The first of the tasks without a solution; `results.json` has all."""
    uri: Annotated[str, Field(max_length=512)]
    """Where the verdicts are kept."""


class OracleVerdict(WireModel):
    """What a task's own solution scored: a file of the verdicts' folder, named by what it depends on."""

    task: str
    """Name of the task's folder when it was run."""
    digest: str
    """Digest of its files."""
    images: dict[str, str]
    """Image of each of its containers, by the folder that the container belongs to."""
    environment: str
    """Canonical digest of the sandbox: its kind, resources, network limits, and the harness."""
    reward: float
    error: str | None = None
    """Type of the exception that the trial ended with, if any."""
    said: str | None = None
    """The end of what solution and verifier wrote, for a reward below 1."""
    trial: str
    """URI of the trial's folder."""
    object_name: str
    """BenchmarkRun that ran it."""
    finished_at: str
    """RFC 3339."""
