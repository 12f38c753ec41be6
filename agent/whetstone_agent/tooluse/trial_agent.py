"""The measured model as the agent of one trial: asked through the runner's door, within the trial's budget."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from whetstone_api.jobs import ToolUseConfig

from whetstone_agent.agents.door import Session
from whetstone_agent.agents.errors import (
    BudgetExceededError,
    ModelRefusedError,
    RunBudgetExceededError,
    TargetChangedError,
)
from whetstone_agent.tooluse.agents import ModelAgent, ModelFailedError, ModelSettings, UsedUpError
from whetstone_agent.tooluse.conversation import Conversation, Turn
from whetstone_agent.tooluse.outcomes import End
from whetstone_agent.tooluse.recipe import MAX_TOKENS


class StoppedError(Exception):
    """The run ends, and the trial with it: it leaves nothing."""


class TrialAgent:
    """Asks the model for one trial. The door sets sampling and seed, tries again, counts, and knows what ended it.

    Args:
        config: What to do.
        session: The trial's session at the door.
        stopped: Set when the run ends.
        clock: Seconds of a clock that never goes back.
    """

    def __init__(
        self,
        config: ToolUseConfig,
        session: Session,
        *,
        stopped: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._stopped = stopped
        self._clock = clock
        budget = config.agent.budget
        self._seconds = budget.wall_clock_seconds if budget else None
        self._started = clock()
        settings = ModelSettings(
            url=session.url,
            model=config.served_name,
            max_tokens=config.agent.parameters.max_tokens or MAX_TOKENS,
            seed=session.seed,
        )
        self._model = ModelAgent(settings, retries=0, seconds_left=self._left)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.__exit__(kind, error, trace)

    def act(self, conversation: Conversation) -> Turn:
        """Ask the model.

        Raises:
            StoppedError: The run has ended meanwhile.
            TargetChangedError, RunBudgetExceededError: The run is to end.
            UsedUpError: The trial's budget is used up.
            ContextOutgrownError, ModelFailedError: As any agent's.
        """
        if self._stopped.is_set():
            raise StoppedError
        if self._left() <= 0:
            raise UsedUpError(End.TIME_EXCEEDED)
        try:
            return self._model.act(conversation)
        except (ModelFailedError, ModelRefusedError) as error:
            raise self._cause(error) from error

    def _left(self) -> float:
        return float("inf") if self._seconds is None else self._seconds - (self._clock() - self._started)

    def _cause(self, error: Exception) -> Exception:
        """Return what was behind a call that failed."""
        ended = self._session.end
        if self._stopped.is_set():
            return StoppedError()
        if isinstance(ended, TargetChangedError | RunBudgetExceededError):
            return ended
        if isinstance(ended, BudgetExceededError):
            return UsedUpError(End.BUDGET_EXCEEDED)
        if self._left() <= 0:
            return UsedUpError(End.TIME_EXCEEDED)
        return ModelFailedError(str(ended or error))
