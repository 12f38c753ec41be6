"""The wrapper around every agent that asks the model: its door session, its budgets, and its true end."""

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trial.result import AgentInfo

from whetstone_agent.agents.catalog import build_inner
from whetstone_agent.agents.door import Door
from whetstone_agent.agents.errors import BudgetExceededError, ModelSlowError


class MeasuredAgent(BaseAgent):
    """Harbor agent that lets another one work, and ends it when its server, its version or its budget does.

    Args:
        logs_dir: Folder of the agent's files.
        agent: Name of the agent that works.
        settings: Its settings, from its own file.
        seed: Seed of this attempt's model calls.
        budget_tokens: Tokens of the trial at most.
        budget_seconds: Seconds that the agent may work in the trial, over all of its steps.
    """

    def __init__(
        self,
        logs_dir: Path,
        model_name: str | None = None,
        *,
        agent: str,
        settings: dict[str, Any],
        seed: int,
        budget_tokens: int | None = None,
        budget_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(logs_dir, model_name, **kwargs)
        self._door = door = Door.current()
        self._session = door.enter(seed=seed, token_limit=budget_tokens)
        # Harbor does not say when a trial's last step is over, but lets go of its agent then.
        weakref.finalize(self, door.leave, self._session)
        self._budget_seconds = budget_seconds
        self._seconds = 0.0
        self._inner = build_inner(
            agent, door=door, url=self._session.url, settings=settings, logs_dir=logs_dir, **kwargs
        )
        # Harbor compares what a task needs with what its agent can.
        self.capabilities = self._inner.capabilities

    @staticmethod
    def name() -> str:
        """Return the wrapper's name; Harbor's results name the agent that works."""
        return "whetstone-measured"

    def version(self) -> str | None:
        """Return the version of the agent that works."""
        version: str | None = self._inner.version()
        return version

    def to_agent_info(self) -> AgentInfo:
        """Return whom Harbor's results name."""
        return self._inner.to_agent_info()

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Let the agent that works fill in what it only knows afterwards."""
        self._inner.populate_context_post_run(context)

    async def setup(self, environment: BaseEnvironment) -> None:
        """Prepare the sandbox for the agent."""
        self._inner.session_id, self._inner.context_id = self.session_id, self.context_id
        await self._inner.setup(environment)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Work on a task, or on one step of it.

        Raises:
            ModelUnavailableError, ModelRefusedError, ModelSlowError: The trial is void.
            TargetChangedError, RunBudgetExceededError: The run ends.
            BudgetExceededError: The trial used up its budget; it is scored.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            await self._until_ended(self._inner.run(instruction, environment, context))
        finally:
            self._seconds += loop.time() - started
            self._tell(context, slow=self._door.slowness(self._session, elapsed=self._seconds))

    async def _until_ended(self, working: Awaitable[None]) -> None:
        """Let the agent work until it ends, its session does, or its time is over."""
        started = asyncio.get_running_loop().time()
        work = asyncio.ensure_future(working)
        end = asyncio.ensure_future(self._session.ended.wait())
        left = None if self._budget_seconds is None else max(0.0, self._budget_seconds - self._seconds)
        try:
            await asyncio.wait({work, end}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not end.done():
                elapsed = self._seconds + asyncio.get_running_loop().time() - started
                message = f"{self._budget_seconds} s used up (spec.agent.budget.wallClockSeconds)"
                slow = self._door.slowness(self._session, elapsed=elapsed)
                self._session.stop(ModelSlowError(f"{message}; {slow}") if slow else BudgetExceededError(message))
        finally:
            end.cancel()
            if not work.done():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await work
        if self._session.end is not None:
            # Whatever the agent made of it: the cause counts, not its consequence.
            if not work.cancelled():
                work.exception()
            raise self._session.end
        await work

    def _tell(self, context: AgentContext, *, slow: str | None) -> None:
        """Complete the agent's own account with what the door counted.

        Args:
            context: The account.
            slow: Why a time that ran out is the server's doing.
        """
        usage = self._session.usage
        if not context.n_input_tokens:
            context.n_input_tokens = usage.prompt_tokens
        if not context.n_output_tokens:
            context.n_output_tokens = usage.completion_tokens
        context.metadata = {**(context.metadata or {}), "model": usage.to_metadata() | ({"slow": slow} if slow else {})}
