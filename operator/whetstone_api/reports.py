"""What pods tell the operator: progress over HTTP, the outcome in the termination message.

Progress follows the idea of Kubeflow's trainer status protocol: `POST {report_url}` with a projected
service-account token (audience `REPORT_AUDIENCE`) as bearer and a `ProgressReport` as body. The operator accepts a
report only from a pod that belongs to the object. Losing one loses nothing: the outcome is in the termination message.
"""

from enum import StrEnum
from typing import Any

from pydantic import Field

from whetstone_api.wire import WireModel

FETCHING = "Fetching"
"""Phase of a run whose tasks, environment or agent are being fetched."""
WAITING_FOR_SERVER = "WaitingForServer"
"""Phase of a run that its queue has let start while another one measures the server."""
MAX_TERMINATION_BYTES = 4096
"""Kubernetes cuts a termination message there."""


class ProgressReport(WireModel):
    """Where a Job is. Also sent by sidecars, with phase `Changed`, when their pod's state changed."""

    phase: str
    """Validate, Prepare, Train, Verify, Publish; Fetching, Preflight, WaitingForServer, Oracle, Trials, Score;
    Changed."""
    step: int | None = None
    """Steps or trials done."""
    max_steps: int | None = None
    """Steps or trials in all."""
    loss: float | None = None
    passed: int | None = None
    """Trials with a full reward."""
    failed: int | None = None
    """Trials with less."""
    void: int | None = None
    """Trials that the infrastructure spoiled."""
    running: int | None = None
    """Trials at work."""
    fetched_bytes: int | None = None
    """Bytes of what is fetched before the run that are there, while phase is Fetching."""
    total_bytes: int | None = None
    """Bytes that are fetched in all."""
    eta_seconds: int | None = None
    percent: int | None = None
    """Of the training, where a program says no steps."""
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    peak_memory_bytes: int | None = None
    """Most memory used so far: of the device where there is one, else of the process."""
    plan: dict[str, Any] | None = None
    """`ChosenPlan` by which a training is at work."""
    adapter: dict[str, Any] | None = None
    """`PublishedAdapter`, once it lies at its place: servers load it before the pod has ended. A hint; the digest is
    checked on load, and the termination message has the last word."""


class Turn(WireModel):
    """Whether a run that its queue has let start may measure its server by now: the operator's answer to its pods."""

    granted: bool
    held_by: list[str] = Field(default_factory=list)
    """Runs that measure the server."""


class Outcome(StrEnum):
    """How a Job's container ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    """The input is wrong: trying again changes nothing (exit code `EXIT_USER_ERROR`)."""
    RETRY = "Retry"
    """Something around it failed, or it was stopped: try again."""


class TerminationReport(WireModel):
    """The termination message of a Job's container."""

    outcome: Outcome
    reason: str
    """A `Reason`."""
    message: str
    result: dict[str, Any] = Field(default_factory=dict)
    """Prepare: `dataset` (DatasetReport), `estimate` (MemoryEstimate). Train: `adapter` (PublishedAdapter), `metrics`,
    `plan` (ChosenPlan), `adopted`, `warnings` (sentences). Merge, also when it failed: `merged` (MergedModel), `pushes`
    (list of PushResult) that are done.
    Benchmark: `target`, `results`, `comparison`, `recipeDigest`, `suiteDigest`, `contaminated` (task names),
    `adopted`."""

    def to_termination_message(self) -> str:
        """Return the message as JSON of at most `MAX_TERMINATION_BYTES` bytes; a longer sentence is cut."""
        text = self.to_json()
        excess = len(text.encode()) - MAX_TERMINATION_BYTES
        if excess <= 0:
            return text
        kept = self.message.encode()[: max(0, len(self.message.encode()) - excess - 64)].decode(errors="ignore")
        return self.model_copy(update={"message": kept + " …"}).to_json()
