"""Checkpoints that are whole or absent, and the training continued from the newest whole one.

Transformers writes a checkpoint file by file and resumes from the highest number without looking inside. Here it
writes into a folder aside (`INCOMING`); a finished one gets a manifest of sizes and checksums and is renamed to
its place. Only a checkpoint whose files all match its manifest is continued.
"""

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from whetstone_api.vocabulary import Reason
from whetstone_api.wire import WireModel

from whetstone_trainer.distributed import Ranks
from whetstone_trainer.errors import UserError
from whetstone_trainer.failpoints import failpoint
from whetstone_trainer.room import naming_a_full_disk
from whetstone_trainer.snapshots import seal, verified_recipe

log = logging.getLogger(__name__)

CHECKPOINTS_FOLDER = "checkpoints"
INCOMING = ".incoming"
PREFIX = "checkpoint-"
CLOCK_FILE = "clock.json"


class Clock(WireModel):
    """Time spent in the training loop up to a checkpoint."""

    train_seconds: float
    ranks: int = 1
    """Processes that train together: the random state of each is in the checkpoint."""


class Checkpoints:
    """The checkpoints of one job.

    Args:
        workspace: Folder of the object in the workspace claim.
        recipe_digest: Recipe that every checkpoint belongs to.
        keep: Number of checkpoints kept.
        ranks: The processes that train together: rank 0 looks for checkpoints and seals them for all.
        best_of: Returns the best step up to a checkpoint, which is kept for as long as that checkpoint.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        recipe_digest: str,
        keep: int,
        ranks: Ranks,
        best_of: Callable[[Path], int | None] = lambda _: None,
    ) -> None:
        self.workspace = workspace
        self.folder = workspace / CHECKPOINTS_FOLDER
        self.incoming = self.folder / INCOMING
        self._recipe_digest = recipe_digest
        self._keep = keep
        self._ranks = ranks
        self._best_of = best_of

    def at(self, step: int) -> Path:
        """Return the whole checkpoint of a step.

        Raises:
            UserError: `CHECKPOINT_MISMATCH` when it is missing or damaged.
        """
        place = self.folder / f"{PREFIX}{step}"
        if verified_recipe(place) != self._recipe_digest:
            raise UserError(
                Reason.CHECKPOINT_MISMATCH,
                f"{place} holds the best step and is missing or damaged; restore it, or remove {self.folder} to begin"
                " anew",
            )
        return place

    def newest(self) -> Path | None:
        """Return the newest whole checkpoint, after removing what a killed process left half done.

        Raises:
            UserError: `CHECKPOINT_MISMATCH` when it belongs to another recipe, or to another number of processes.
        """
        return self._ranks.told(self._find() if self._ranks.place.is_first else None)

    def _find(self) -> Path | None:
        shutil.rmtree(self.incoming, ignore_errors=True)
        for place in reversed(self._places()):
            recipe = verified_recipe(place)
            if recipe is None:
                log.warning("%s is damaged and passed over", place)
                continue
            saved, asked = clock_of(place).ranks, self._ranks.place.size
            if saved != asked:
                raise UserError(
                    Reason.CHECKPOINT_MISMATCH,
                    f"{place} was saved by {saved} processes, and {asked} are to go on from it: go back to {saved}"
                    f" (spec.distributed, or the GPUs in spec.resources), or remove {self.folder} to begin anew",
                )
            if recipe != self._recipe_digest:
                raise UserError(
                    Reason.CHECKPOINT_MISMATCH,
                    f"{place} belongs to another recipe: data, base model or trainer changed since this object was"
                    f" made; remove {self.folder} or create the LoRATrainingJob anew",
                )
            log.info("going on from %s", place)
            return place
        return None

    def admit(self, step: int, *, train_seconds: float) -> None:
        """Take over the checkpoint that transformers has just written aside, and drop the oldest ones."""
        # Each process has written its random state.
        self._ranks.wait()
        if not self._ranks.place.is_first:
            return
        written = self.incoming / f"{PREFIX}{step}"
        clock = Clock(train_seconds=train_seconds, ranks=self._ranks.place.size)
        (written / CLOCK_FILE).write_text(clock.to_json())
        failpoint("mid-checkpoint", self.workspace)
        seal(written, self.folder / written.name, recipe_digest=self._recipe_digest)
        places = self._places()
        best = {self._best_of(place) for place in places[-self._keep :]}
        for place in places[: -self._keep]:
            if step_of(place) not in best:
                shutil.rmtree(place)
        failpoint(f"after-checkpoint:{step}", self.workspace)

    def naming_a_full_disk(self) -> AbstractContextManager[None]:
        """Within this block, an error that says that a checkpoint found no room names the folder and the fix.

        Raises:
            NoRoomError: There was no room.
        """
        fix = "make room in the claim spec.workspace.claimName: the next attempt goes on from the newest checkpoint"
        return naming_a_full_disk("a checkpoint", self.folder, fix)

    def _places(self) -> list[Path]:
        return sorted(self.folder.glob(f"{PREFIX}*"), key=step_of)


def step_of(place: Path) -> int:
    """Return the optimizer step of a checkpoint's folder."""
    return int(place.name.removeprefix(PREFIX))


def clock_of(place: Path) -> Clock:
    """Return what a checkpoint says about the training up to it."""
    return Clock.model_validate_json((place / CLOCK_FILE).read_bytes())


def seconds_of(place: Path) -> float:
    """Return the seconds of training that a checkpoint holds."""
    return clock_of(place).train_seconds


class CheckpointCallback(TrainerCallback):
    """Seals what transformers saves.

    Args:
        checkpoints: Where to.
        seconds_before: Seconds of training in earlier attempts.
    """

    def __init__(self, checkpoints: Checkpoints, *, seconds_before: float) -> None:
        self._checkpoints = checkpoints
        self._seconds_before = seconds_before
        self._started = time.monotonic()

    def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Start the clock."""
        self._started = time.monotonic()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Give tests a place to kill a process between two checkpoints."""
        failpoint(f"after-step:{state.global_step}", self._checkpoints.workspace)

    def on_save(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """Seal the checkpoint of this step."""
        self._checkpoints.admit(state.global_step, train_seconds=self.train_seconds)

    @property
    def train_seconds(self) -> float:
        """Seconds of training in all attempts that count."""
        return self._seconds_before + time.monotonic() - self._started
