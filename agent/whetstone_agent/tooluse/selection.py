"""The instances that a run with a `toolUse` suite is about, and the world that they are about."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from whetstone_api.benchmark_tooluse import InstanceFilter, InstanceOrder, ToolMode, ToolUseSuite
from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import ToolUseConfig
from whetstone_api.vocabulary import Reason

from whetstone_agent.failure import RunFailure, hold_to_digest
from whetstone_agent.tasks import ScoredTask
from whetstone_agent.tooluse.api_tools import Mode
from whetstone_agent.tooluse.env import EnvironmentSettings
from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import Instance, Order
from whetstone_agent.tooluse.scorers import ScorerName
from whetstone_agent.tooluse.toolbox import ToolSettings, TopKBy
from whetstone_agent.tooluse.world import World

_ORDERS: Final = {
    InstanceOrder.RAG_BEFORE_API: Order.RAG_BEFORE_API,
    InstanceOrder.API_BEFORE_RAG: Order.API_BEFORE_RAG,
}
_MODES: Final = {
    ToolMode.REST: Mode.REST,
    ToolMode.SLOT_FILLING: Mode.SLOT_FILLING,
    ToolMode.SELECTION: Mode.SELECTION,
}


@dataclass(frozen=True, kw_only=True)
class InstanceTask(ScoredTask):
    """An instance as a task."""

    instance: Instance


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a run is about."""

    world: World
    tasks: list[InstanceTask]


def select(config: ToolUseConfig, cache: Path) -> Selection:
    """Read the environment, and the instances that a suite selects.

    Args:
        config: What to do.
        cache: Folder for indexes.

    Raises:
        RunFailure: `TASKS_INVALID`: something in the folder cannot be used, or no instance is left;
            `DIGEST_MISMATCH`: it holds other files than the spec says.
    """
    suite, folder = config.tool_use, Path(config.environment_path)
    where = f"spec.suite.toolUse.environment ({suite.environment.uri})"
    if not folder.is_dir():
        raise RunFailure(Reason.TASKS_INVALID, f"{where} is not a folder; name the folder with collections/")
    if suite.environment.in_claim is not None and suite.environment.digest is not None:
        hold_to_digest(folder, suite.environment.digest, where)
    try:
        world = World.open(folder, cache)
        instances = world.read(folder / suite.instances.file)
    except EnvironmentDataError as error:
        raise RunFailure(Reason.TASKS_INVALID, f"{where}: {error}") from error
    chosen = _chosen(instances, suite.instances)
    if not chosen:
        raise RunFailure(
            Reason.TASKS_INVALID,
            f"spec.suite.toolUse.instances leaves none of the {len(instances)} instances of {suite.instances.file};"
            " fix include and order",
        )
    return Selection(world=world, tasks=[_task(one) for one in chosen])


def environment_settings(suite: ToolUseSuite) -> EnvironmentSettings:
    """Return the settings of episodes."""
    tools = suite.tools
    return EnvironmentSettings(
        horizon=suite.horizon,
        repeated_actions=suite.repeated_actions,
        observation_characters=suite.observation_characters,
        scorer=ScorerName(suite.scorer.kind),
        tools=ToolSettings(
            mode=_MODES[tools.mode],
            top_k=tools.top_k,
            top_k_by=TopKBy(tools.top_k_by),
            largest_top_k=tools.largest_top_k,
        ),
    )


def _chosen(instances: Sequence[Instance], asked: InstanceFilter) -> list[Instance]:
    order = _ORDERS[asked.order] if asked.order is not None else None
    kept = [
        one
        for one in instances
        if (asked.include is None or any(fnmatchcase(one.id, glob) for glob in asked.include))
        and (order is None or one.order is order)
    ]
    return kept[: asked.limit]


def _task(instance: Instance) -> InstanceTask:
    # Tags decide nothing. As text: a digest must not depend on how a number is written down.
    unused = {"tags"} if instance.follow_ups else {"tags", "follow_ups"}
    digest = canonical_digest(instance.model_dump_json(by_alias=True, exclude=unused))
    tags = tuple(instance.tags)
    return InstanceTask(name=instance.id, digest=digest, identity=instance.task, tags=tags, instance=instance)
