"""What of earlier tries is kept: finished trials of the same recipe, whatever the layout that they ran in.

The recipe decides what a trial is worth, so a trial of the same recipe, task and attempt may take the place of one that
is still to run. Harbor resumes a job only under equal settings; therefore settings of trials that are kept are written
anew as they are planned now (concurrency, addresses and folders decide no score).
"""

import json
import logging
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from whetstone_artifacts.replacing import replacing

from whetstone_agent.scoring import read_trial

if TYPE_CHECKING:
    from harbor.models.job.config import JobConfig
    from harbor.models.trial.config import TrialConfig

log = logging.getLogger(__name__)

VOID_ROUNDS: Final = 3
"""How often a void trial is run again by later tries of a run, beside Harbor's own tries."""
ROUNDS_FILE: Final = "void-rounds.json"
"""In a job folder: how often each trial was run again because it was void."""
_STOPPED: Final = frozenset({"CancelledError", "MissingResult"})
"""How a trial ends that was stopped; that is no fault of its own and never counts."""


async def keep_trials(folder: Path, config: "JobConfig", prefix: str) -> None:
    """Make a job folder hold every finished trial of its recipe that it has a place for.

    Args:
        folder: The job's folder.
        config: The job as it is about to run.
        prefix: What the names of all job folders of the recipe begin with.
    """
    from harbor.job_plan import JobPlan

    planned = JobPlan.build_trial_configs(config, await JobPlan.resolve_task_configs(config), job_id=uuid4())
    _gather(folder, config, prefix, planned)


def _gather(folder: Path, config: "JobConfig", prefix: str, planned: Sequence["TrialConfig"]) -> None:
    free: dict[str, list[TrialConfig]] = defaultdict(list)
    for one in planned:
        free[_key(one.model_dump(mode="json"))].append(one)
    folder.mkdir(parents=True, exist_ok=True)
    _sort_own(folder, free)
    for path in _elsewhere(folder, prefix):
        trial = read_trial(path)
        if trial is not None and trial.reward is not None and (place := _take(path, free)) is not None:
            target = folder / path.name
            path.rename(target)
            _bind(target, place)
    _write_config(folder, config)


def _sort_own(folder: Path, free: dict[str, list["TrialConfig"]]) -> None:
    """Keep what is finished or was void too often; drop what is to run again."""
    rounds = _read_rounds(folder)
    for path in _trial_folders(folder):
        trial = read_trial(path)
        key = _key_of(path)
        if trial is not None and key is not None and (trial.reward is not None or rounds.get(key, 0) >= VOID_ROUNDS):
            place = _take(path, free)
            if place is not None:
                _bind(path, place)
                continue
            log.warning("trial %s is none of those planned now; it runs again under its present plan", path.name)
        elif trial is not None and key is not None and trial.error not in _STOPPED:
            rounds[key] = rounds.get(key, 0) + 1
            _write(folder / ROUNDS_FILE, json.dumps(rounds, indent=1))
        shutil.rmtree(path)


def _take(path: Path, free: dict[str, list["TrialConfig"]]) -> "TrialConfig | None":
    """Return the plan whose place a trial takes; None where all such places are taken."""
    places = free.get(_key_of(path) or "")
    return places.pop(0) if places else None


def _bind(path: Path, place: "TrialConfig") -> None:
    config = place.model_copy(update={"trial_name": path.name})
    _write(path / "config.json", config.model_dump_json(indent=4))


def _write(path: Path, text: str) -> None:
    with replacing(path, durable=False) as temporary:
        temporary.write_text(text)


def _write_config(folder: Path, config: "JobConfig") -> None:
    """Leave the job's settings as Harbor would, so that it resumes; what it noted under others goes."""
    from harbor.models.job.config import JobConfig

    path = folder / "config.json"
    try:
        same = JobConfig.model_validate_json(path.read_bytes()) == config
    except (OSError, ValueError):
        same = False
    if not same:
        for name in ("lock.json", "result.json"):
            (folder / name).unlink(missing_ok=True)
        _write(path, config.model_dump_json(indent=4))


def _elsewhere(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield the trial folders of the recipe's other job folders."""
    for other in sorted(folder.parent.glob(f"{prefix}*")):
        if other != folder and other.is_dir():
            yield from _trial_folders(other)


def _trial_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _key_of(path: Path) -> str | None:
    try:
        return _key(json.loads((path / "config.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _key(config: dict[str, Any]) -> str:
    """Return what tells the trials of a recipe apart: the task, and the attempt where it has a seed of its own."""
    seed = (config["agent"].get("kwargs") or {}).get("seed")
    return f"{Path(config['task']['path']).name}@{'any' if seed is None else seed}"


def _read_rounds(folder: Path) -> dict[str, int]:
    try:
        return {str(key): int(count) for key, count in json.loads((folder / ROUNDS_FILE).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
