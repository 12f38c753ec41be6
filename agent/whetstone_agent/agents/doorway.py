"""The door of a run, from its configuration: opened for the trials, and for nothing else."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from whetstone_api.benchmark_agent import OWN_AGENT
from whetstone_api.jobs import BenchmarkConfig, RunConfig
from whetstone_api.vocabulary import Reason

from whetstone_agent.agents.catalog import asks_model, needs_length
from whetstone_agent.agents.door import PAUSES_SECONDS, Door, Sampling
from whetstone_agent.agents.length import context_tokens
from whetstone_agent.agents.own.code import look_at
from whetstone_agent.agents.run_budget import RunBudget
from whetstone_agent.failure import RunFailure
from whetstone_agent.scoring import read_trials


@contextlib.asynccontextmanager
async def model_door(config: BenchmarkConfig, folder: Path, others: Sequence[Path] = ()) -> AsyncIterator[Door | None]:
    """Keep the door open and give it; for agents that ask no model there is none.

    Args:
        config: What to do.
        folder: Folder of Harbor's job; what its finished trials used counts for the run's budget.
        others: Those of the pods that work on the run too.

    Raises:
        RunFailure: `INVALID_SPEC`: the agent must know the model's length, and nobody says it.
    """
    agent = config.agent
    if not asks_model(agent):
        yield None
        return
    length = await context_tokens(server_url=config.server_url, served_name=config.served_name)
    length = agent.parameters.context_tokens or length
    if length is None and needs_length(agent):
        raise RunFailure(
            Reason.INVALID_SPEC,
            f"agent {agent.chosen} must know the longest conversation of {config.served_name!r}, and"
            f" {config.server_url}/models names no max_model_len; set spec.agent.parameters.contextTokens",
        )
    sampling = config.sampling
    async with Door(
        server_url=config.server_url,
        served_name=config.served_name,
        sampling=Sampling(temperature=float(sampling.temperature), top_p=float(sampling.top_p)),
        context_tokens=length,
        budget=run_budget(config, folder, others, used=_used(folder)),
        agent_socket=config.agent_socket,
        pauses_seconds=PAUSES_SECONDS,
    ) as door:
        if agent.chosen == OWN_AGENT:
            await look_at(agent, door, folder)
        yield door


def run_budget(config: RunConfig, folder: Path, others: Sequence[Path], *, used: int) -> RunBudget | None:
    """Return the budget of a whole run; None for one without.

    Args:
        config: What to do.
        folder: Job folder of this pod.
        others: Those of the pods that work on the run too.
        used: Tokens of this pod's finished trials.
    """
    budget = config.agent.budget
    if budget is None or budget.run_tokens is None:
        return None
    if not others:
        return RunBudget(budget.run_tokens, used=used)
    return RunBudget(budget.run_tokens, used=used, folder=folder, others=others)


def _used(folder: Path) -> int:
    return sum(trial.score.prompt_tokens + trial.score.completion_tokens for trial in read_trials(folder))
