"""A BenchmarkRun with a `toolUse` suite, from its instances to its published result."""

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whetstone_api.benchmark_collect import Collected
from whetstone_api.jobs import ToolUseConfig
from whetstone_api.reports import ProgressReport, TerminationReport
from whetstone_api.run_artifact import EPISODES_FOLDER, RunArtifact
from whetstone_artifacts.reporting import Reporter

from whetstone_agent.agents.door import PAUSES_SECONDS, Door, Sampling
from whetstone_agent.agents.doorway import run_budget
from whetstone_agent.comparison import read_baseline
from whetstone_agent.engine_check import check_engines
from whetstone_agent.engine_use import engine_samples, read_engine_use
from whetstone_agent.preflight import check_target
from whetstone_agent.request import RunRequest
from whetstone_agent.run_end import carry_out, finished_now, measured_target, progress_reports
from whetstone_agent.scoring import run_results, score_tasks
from whetstone_agent.shards import Shard, folder_prefix
from whetstone_agent.tally import Counter
from whetstone_agent.tooluse.collected import collect_episodes
from whetstone_agent.tooluse.figures import tool_use_figures
from whetstone_agent.tooluse.measuring import Place, Trials, places
from whetstone_agent.tooluse.recipe import comparability, recipe_digest
from whetstone_agent.tooluse.selection import InstanceTask, Selection, select
from whetstone_agent.tooluse.services import check_services, open_services
from whetstone_agent.tooluse.trials import TrialRecord, read_record, scored_trials

INDEXES_FOLDER = "indexes"
"""Folder of the output with the indexes of collections."""


@dataclass(frozen=True, kw_only=True)
class ToolUseRequest(RunRequest):
    """A run that can start: its instances are read."""

    under = EPISODES_FOLDER

    config: ToolUseConfig
    tasks: list[InstanceTask]
    selection: Selection

    @property
    def trials_folder(self) -> Path:
        """Folder of the recipe's trials, whatever shard ran them."""
        return self.output / self.under / f"{folder_prefix(self.recipe)}trials"

    @property
    def places(self) -> list[Place]:
        """All trials of the run."""
        return places(self.tasks, self.config.attempts, self.trials_folder)

    @property
    def own_places(self) -> list[Place]:
        """Trials of this shard."""
        return places(self.shard.tasks(self.tasks), self.config.attempts, self.trials_folder)

    def records(self) -> list[TrialRecord]:
        """Return the trials that are there, by task and attempt."""
        found = (read_record(place.folder) for place in self.places)
        return [one for one in found if one is not None]


async def run_tool_use(config: ToolUseConfig, reporter: Reporter, shard: Shard | None = None) -> TerminationReport:
    """Run a benchmark of the tool-use gym, as `carry_out` does.

    Args:
        config: What to do.
        reporter: Gets the progress.
        shard: Which part of the run; what the Job says when absent.

    Returns:
        The report of success; of a shard that did not score the run, without a result.

    Raises:
        RunFailure: There is no result, for a reason that the report will name.
        ArtifactError: The output place cannot be used.
    """
    reporter.send(ProgressReport(phase="Preflight"))
    request = await asyncio.to_thread(_admit, config, shard or Shard.of(config))
    return await carry_out(
        request,
        reporter,
        measure=partial(_measure, request, reporter),
        make=partial(_artifact, request),
        collect=lambda _: _collect(request),
    )


def _admit(config: ToolUseConfig, shard: Shard) -> ToolUseRequest:
    selection = select(config, Path(config.output_path) / INDEXES_FOLDER)
    baseline = read_baseline(config)
    return ToolUseRequest(
        config=config,
        tasks=selection.tasks,
        selection=selection,
        recipe=recipe_digest(config, comparability(config, selection.tasks, selection.world)),
        baseline=baseline,
        shard=shard,
    )


async def _measure(request: ToolUseRequest, reporter: Reporter) -> None:
    """Run the trials of this shard."""
    config, wanted = request.config, request.own_places
    counter = Counter(request.folder, len(wanted))
    if not wanted:
        counter.write(complete=True)
        return
    asking = config.tool_use.expert.asks_model
    with contextlib.ExitStack() as stack:
        services = open_services(config, request.selection.world, stack)
        await asyncio.to_thread(check_services, services, collections=list(request.selection.world.collections))
        if asking:
            await check_target(server_url=config.server_url, served_name=config.served_name)
        async with contextlib.AsyncExitStack() as opened:
            door = await opened.enter_async_context(_door(request)) if asking else None
            await opened.enter_async_context(engine_samples(config, request.folder))
            trials = Trials(
                config,
                request.selection,
                services,
                door=door,
                counter=counter,
                progress=progress_reports(request, reporter),
            )
            await trials.run(wanted, at_once=request.shard.concurrency(config.concurrency))
    if asking:
        await check_target(server_url=config.server_url, served_name=config.served_name, during=True)
    counter.write(complete=True)


def _collect(request: ToolUseRequest) -> Collected | None:
    config = request.config
    if config.collect is None:
        return None
    return collect_episodes(request.output, request.records(), spec=config.collect, uri=config.output_uri)


def _door(request: ToolUseRequest) -> Door:
    config = request.config
    sampling = config.sampling
    own = (read_record(place.folder) for place in request.own_places)
    used = sum(one.prompt_tokens + one.completion_tokens for one in own if one is not None)
    return Door(
        server_url=config.server_url,
        served_name=config.served_name,
        sampling=Sampling(temperature=float(sampling.temperature), top_p=float(sampling.top_p)),
        budget=run_budget(config, request.folder, request.others, used=used),
        pauses_seconds=PAUSES_SECONDS,
    )


def _artifact(request: ToolUseRequest) -> RunArtifact:
    config, records = request.config, request.records()
    scores = score_tasks(scored_trials(records), tasks=request.tasks, attempts=config.attempts)
    figures = tool_use_figures(records, scores=scores, tasks=request.tasks)
    results = run_results(scores, uri=config.output_uri)
    if config.tool_use.expert.assists:
        results = results.model_copy(update={"expert_steps": figures.expert_steps})
    return RunArtifact(
        recipe_digest=request.recipe,
        target=measured_target(config),
        engine_check=check_engines(config),
        comparability=comparability(config, request.tasks, request.selection.world),
        results=results,
        engine_use=read_engine_use(request.folders),
        tool_use=figures,
        tasks=scores,
        finished_at=finished_now(),
        object_name=config.object.name,
        namespace=config.object.namespace,
    )
