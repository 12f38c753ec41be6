"""What a shard found out about its tasks before it ran them, as files: the shard that scores the run reads them all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError
from whetstone_api.benchmark_oracle import ORACLE_FOLDER, OracleChecked
from whetstone_api.benchmark_suite import RefusedTask, WhenRefused
from whetstone_api.vocabulary import Reason
from whetstone_api.wire import WireModel
from whetstone_artifacts.replacing import replacing

from whetstone_agent.admission import told_faults
from whetstone_agent.failure import RunFailure
from whetstone_agent.request import Request
from whetstone_agent.shards import Shard, folder_prefix

FINDINGS_FILE: Final = "findings.json"
REFUSED_FILE: Final = "refused.json"
"""In a shard's job folder: the tasks that have no room here, whether solutions are tried or not."""
_SHOWN: Final = 8


class Findings(WireModel):
    """What the check found of the tasks of a shard."""

    refused: list[RefusedTask] = Field(default_factory=list)
    """Those that are not run."""
    solved: int = 0
    reused: int = 0
    without_solution: list[str] = Field(default_factory=list)
    """Those that are run though they bring no solution."""


def shard_folder(request: Request, shard: Shard) -> Path:
    """Return the folder in which a shard keeps the trials of solutions, their count, and what it found."""
    return request.output / ORACLE_FOLDER / f"{folder_prefix(request.recipe)}{shard.index}-of-{shard.count}"


def shard_folders(request: Request) -> list[Path]:
    """Return those of all shards."""
    return [shard_folder(request, shard) for shard in request.shard.all()]


def write_findings(request: Request, findings: Findings) -> None:
    """Leave what this shard found."""
    _write(shard_folder(request, request.shard) / FINDINGS_FILE, findings)


def keep_refused(request: Request, refused: Sequence[RefusedTask]) -> None:
    """Leave which tasks of this shard have no room here.

    Raises:
        RunFailure: `TASKS_INVALID`: there are some, and the run says that it fails then.
    """
    if refused and request.config.suite.refused is WhenRefused.FAIL:
        raise RunFailure(Reason.TASKS_INVALID, told_faults(refused, request.config.suite))
    _write(request.folder / REFUSED_FILE, Findings(refused=list(refused)))


def read_findings(request: Request) -> Findings:
    """Return what all shards have found so far, of a run that is checked or not."""
    files = [folder / FINDINGS_FILE for folder in shard_folders(request)]
    files += [folder / REFUSED_FILE for folder in request.folders]
    known = [found for file in files if (found := _read(file)) is not None]
    return Findings(
        refused=[one for found in known for one in found.refused],
        solved=sum(found.solved for found in known),
        reused=sum(found.reused for found in known),
        without_solution=sorted(name for found in known for name in found.without_solution),
    )


def checked(findings: Findings, *, uri: str) -> OracleChecked:
    """Return what status and results say of it."""
    return OracleChecked(
        solved=findings.solved,
        reused=findings.reused,
        without_solution=len(findings.without_solution),
        names=_first(findings.without_solution) or None,
        uri=uri,
    )


def _first(names: Sequence[str]) -> list[str]:
    return list(names[:_SHOWN])


def _write(file: Path, findings: Findings) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary:
        temporary.write_text(findings.to_json() + "\n")


def _read(file: Path) -> Findings | None:
    try:
        return Findings.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
