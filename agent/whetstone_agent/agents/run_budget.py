"""What all trials of a run may use up, counted in one pod, or in several that share the volume of the results.

Each pod leaves its own count in a file of its job folder, and adds to it those of the others. So the budget is one for
the whole run, however unevenly the tasks use it; a pod learns of what others have used within some seconds.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from whetstone_api.wire import WireModel
from whetstone_artifacts.replacing import replacing

log = logging.getLogger(__name__)

TOKENS_FILE: Final = "tokens.json"
EVERY_SECONDS: Final = 1.0
"""How often a pod tells the others what it has used, and looks what they have."""


class Tokens(WireModel):
    """What the trials of one pod have used."""

    tokens: int
    """Prompts and replies together: of finished trials, and of those at work."""


class RunBudget:
    """The budget of a run.

    Args:
        limit: Tokens of all trials together.
        used: Tokens of this pod's finished trials.
        folder: Job folder of this pod; None where it has the run for itself.
        others: Job folders of the other pods.
        clock: Seconds of a clock that never goes back.
    """

    def __init__(
        self,
        limit: int,
        *,
        used: int = 0,
        folder: Path | None = None,
        others: Sequence[Path] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._own = used
        self._file = None if folder is None else folder / TOKENS_FILE
        self._others = [path / TOKENS_FILE for path in others]
        self._clock = clock
        self._theirs = 0
        self._looked_at: float | None = None
        self._telling: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Tell the other pods what is used: an earlier try of this one may have left another count."""
        self._tell()

    def spend(self, tokens: int) -> None:
        """Count tokens; the other pods are told soon."""
        self._own += tokens
        if self._file is not None and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(EVERY_SECONDS, self._tell)

    def overspent(self) -> str | None:
        """Say how much is used, where nothing is left; None while something is."""
        used = self._own + self._used_by_others()
        return f"{used} tokens used of {self._limit}" if used >= self._limit else None

    def close(self) -> None:
        """Tell the other pods the last count."""
        if self._telling is not None:
            self._telling.cancel()
            self._tell()

    def _tell(self) -> None:
        self._telling = None
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._file, durable=False) as temporary:
                temporary.write_text(Tokens(tokens=self._own).to_json())
        except OSError as error:
            # The volume is full or gone: trials meet that too, and the run ends with its reason.
            log.warning("the other pods are not told how many tokens are used: %s", error)

    def _used_by_others(self) -> int:
        now = self._clock()
        if self._others and (self._looked_at is None or now - self._looked_at >= EVERY_SECONDS):
            self._theirs, self._looked_at = sum(map(_read, self._others)), now
        return self._theirs


def _read(file: Path) -> int:
    try:
        return Tokens.model_validate_json(file.read_bytes()).tokens
    except (OSError, ValidationError):
        return 0
