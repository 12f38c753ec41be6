"""Whether compiling the layers pays, measured in the training itself and decided once.

The first steps run as they are. Where what is left at their pace could pay for it, the layers are compiled and as many
steps are timed again; they stay compiled where that is faster. Every step counts for the training, so nothing is done
for the measurement alone. The decision goes into the workspace, for later attempts, and rank 0 decides for all.
"""

import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from whetstone_trainer.attempts import remember
from whetstone_trainer.device import compile_layers, uncompile_layers
from whetstone_trainer.distributed import Ranks
from whetstone_trainer.plan import Plan

log = logging.getLogger(__name__)

WARM_UP = 3
"""Steps that are not timed: caches fill, memory is taken, layers are compiled."""
TIMED = 8
"""Steps of which the median counts."""
COMPILE_SECONDS = 90.0
"""What compiling took at most on one H100 (docs/training-memory.md)."""
SAVED = 0.4
"""Share of a step that it saved there at most."""


class CompileTrial(TrainerCallback):
    """Tries compiled layers during the first steps of an attempt.

    Args:
        plan: The plan, whose layers are not compiled.
        workspace: Folder of the object in the workspace claim.
        recipe_digest: What is asked.
        ranks: The processes that train together.
        clock: Tells seconds.
    """

    def __init__(
        self,
        plan: Plan,
        workspace: Path,
        *,
        recipe_digest: str,
        ranks: Ranks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        """The plan; once it is decided, with the decision and its reason."""
        self._workspace = workspace
        self._recipe_digest = recipe_digest
        self._ranks = ranks
        self._clock = clock
        self._seconds: list[float] = []
        self._started = 0.0
        self._plain: float | None = None

    def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Start the clock of a step."""
        if self.plan.tries_compiling:
            self._started = self._now()

    def on_step_end(self, _args: Any, state: Any, _control: Any, *, model: Any, **_kwargs: Any) -> None:
        """Time a step; after enough of them, go on to the next part of the trial."""
        if not self.plan.tries_compiling:
            return
        self._seconds.append(self._now() - self._started)
        if len(self._seconds) < WARM_UP + TIMED:
            return
        seconds = self._ranks.told(statistics.median(self._seconds[WARM_UP:]))
        self._seconds = []
        if self._plain is None:
            self._begin(model, seconds, left=state.max_steps - state.global_step)
        else:
            self._end(model, seconds)

    def _begin(self, model: Any, seconds: float, *, left: int) -> None:
        self._plain = seconds
        if left * seconds * SAVED < COMPILE_SECONDS:
            self._decide(False, f"nothing is compiled, since {left} steps of {seconds:.2f} s cannot pay for it")
        else:
            compile_layers(model, self._workspace)

    def _end(self, model: Any, seconds: float) -> None:
        faster = seconds < (self._plain or 0.0)
        if not faster:
            uncompile_layers(model)
        words = "the layers are compiled" if faster else "nothing is compiled"
        self._decide(faster, f"{words}, since a step took {self._plain:.2f} s without and {seconds:.2f} s with it")

    def _decide(self, compiled: bool, reason: str) -> None:
        log.info("%s", reason)
        self.plan = replace(self.plan, compiled=compiled, tries_compiling=False, reason=f"{reason}; {self.plan.reason}")
        if self._ranks.place.is_first:
            remember(self.plan, self._workspace, recipe_digest=self._recipe_digest)

    def _now(self) -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return self._clock()
