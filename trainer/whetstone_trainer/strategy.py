"""`Auto`: the base model in each process where it fits with all else, a share of it in each where it does not."""

import logging

from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_distributed import Strategy
from whetstone_artifacts.training_choice import memory_bytes

from whetstone_trainer.memory_estimate import fits
from whetstone_trainer.recipe import Settings

log = logging.getLogger(__name__)


def settled(config: TrainingConfig, settings: Settings, dataset: DatasetReport, *, free: int | None) -> TrainingConfig:
    """Return the configuration with a strategy in the place of `Auto`.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        dataset: What Prepare found.
        free: Free memory in bytes of the device with least; None where it is not known, or there is none.
    """
    if config.world.strategy is not Strategy.AUTO:
        return config
    whole = _with(config, Strategy.DDP)
    only_whole = config.world.ranks == 1 or config.quantization.applied is not None
    if only_whole or free is None or fits(whole, settings, dataset, free=free) is not False:
        return whole
    log.info("the base model does not fit one of the %d devices: FSDP shares it out", config.world.ranks)
    return _with(config, Strategy.FSDP)


def expected(config: TrainingConfig, settings: Settings, dataset: DatasetReport) -> TrainingConfig:
    """Return the configuration that will be settled on, as far as `spec.plan.deviceMemory` tells."""
    memory = config.plan.device_memory
    return settled(config, settings, dataset, free=memory_bytes(memory) if memory else None)


def _with(config: TrainingConfig, strategy: Strategy) -> TrainingConfig:
    return config.model_copy(update={"world": config.world.model_copy(update={"strategy": strategy})})
