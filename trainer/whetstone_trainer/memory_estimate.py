"""What a training takes of its device, for every micro-batch that `spec.plan` leaves open, in figures and in words."""

from dataclasses import dataclass, replace
from pathlib import Path

from whetstone_api.jobs import TrainingConfig
from whetstone_api.model_facts import ModelFacts
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_plan import MemoryEstimate, MemoryPart
from whetstone_api.training_settings import Method
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.model_facts import read_model_facts
from whetstone_artifacts.serving_memory import quantity
from whetstone_artifacts.training_choice import (
    CPU_HALF_SPEED_TOKENS,
    HALF_SPEED_TOKENS,
    Choice,
    Freedom,
    choices,
    fastest,
    freedom_of,
    memory_bytes,
    most_sparing,
    shape_of,
)
from whetstone_artifacts.training_memory import is_certain
from whetstone_artifacts.training_operations import Work, training_operations

from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import Settings
from whetstone_trainer.reference import reference_bytes


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What Prepare expects a training to take.

    Args:
        estimate: Of one device.
        warning: What to tell where a training on CPUs may be killed for want of memory.
    """

    estimate: MemoryEstimate
    warning: str | None


def expect(
    config: TrainingConfig, settings: Settings, dataset: DatasetReport, *, limit: int | None = None
) -> Expectation | None:
    """Return what the training will take of one device; None where the model's shape is not known.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        dataset: What Prepare found.
        limit: Bytes of main memory that a process of a training on CPUs may take; None for no limit.

    Raises:
        UserError: `DEVICE_TOO_SMALL`: more than `spec.plan.deviceMemory`; or weights and adapter alone are more than
            main memory, which is no matter of estimation.
    """
    facts = read_model_facts(Path(config.base_model_path))
    if facts is None:
        return None
    limit = None if config.on_accelerator else limit
    found = _expected_choices(config, settings, dataset, facts, limit=limit)
    best, least = _best(config, dataset, found, limit=limit), most_sparing(found)
    warning = None
    if limit is not None and fastest(found, free=limit) is None:
        warning = (
            f"spec.resources.limits.memory leaves {quantity(limit)} to a process, and"
            f" {_takes(least, dataset)} as estimated: the kernel may kill the training"
        )
    tokens = _learned_tokens(settings, dataset)
    operations = training_operations(facts, _work(config, dataset, tokens=tokens, checkpointing=best.checkpointing))
    estimate = MemoryEstimate(
        memory=in_words(best),
        least=in_words(least),
        plan=f"micro-batch {best.micro_batch}{checkpointing_of(best)}, rows of {dataset.longest} tokens",
        basis=[
            MemoryPart(name=name, bytes=size) for name, size in (best.memory.parts() if best.memory else {}).items()
        ],
        tokens=tokens,
        operations=None if operations is None else f"{operations:.4g}",
    )
    return Expectation(estimate=estimate, warning=warning)


def _best(config: TrainingConfig, dataset: DatasetReport, found: list[Choice], *, limit: int | None) -> Choice:
    """Return the fastest choice that fits, as far as what it has to fit is known.

    Raises:
        UserError: As `expect`.
    """
    least = most_sparing(found)
    if config.plan.device_memory:
        fitting = fastest(found, free=memory_bytes(config.plan.device_memory))
        if fitting is None:
            raise UserError(
                Reason.DEVICE_TOO_SMALL,
                f"spec.plan.deviceMemory is {config.plan.device_memory}, and {_takes(least, dataset)}; shorten the"
                f" longest rows (hyperparameters.maxLength), lower lora.rank, or {_larger(config)}",
            )
        return fitting
    if limit is None:
        return found[0]
    if least.memory and is_certain(config.lora.target_modules) and least.memory.certain > limit:
        raise UserError(
            Reason.DEVICE_TOO_SMALL,
            f"spec.resources.limits.memory leaves {quantity(limit)} to a process, and base model, adapter and"
            f" libraries alone take {quantity(least.memory.certain)}: the kernel would kill it; lower lora.rank, or"
            " raise spec.resources.limits.memory and ask for a retry",
        )
    return fastest(found, free=limit) or least


def _work(config: TrainingConfig, dataset: DatasetReport, *, tokens: int, checkpointing: bool) -> Work:
    """Return what the training computes."""
    rows = dataset.rows * (1 if config.method is Method.SFT else 2)
    return Work(
        tokens=tokens,
        row=max(1, dataset.tokens // rows),
        checkpointing=checkpointing,
        reference=config.method is Method.DPO,
    )


def _learned_tokens(settings: Settings, dataset: DatasetReport) -> int:
    """Return the tokens that all steps learn from."""
    if settings.max_steps is None:
        return dataset.tokens * (settings.epochs or 1)
    return settings.max_steps * settings.batch_size * dataset.tokens // dataset.rows


def fits(config: TrainingConfig, settings: Settings, dataset: DatasetReport, *, free: int) -> bool | None:
    """Return whether any plan that `spec.plan` leaves open fits a device; None where the model's shape is not known.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        dataset: What Prepare found.
        free: Free memory of the device in bytes.
    """
    facts = read_model_facts(Path(config.base_model_path))
    if facts is None:
        return None
    found = _expected_choices(config, settings, dataset, facts, limit=free)
    return fastest(found, free=free) is not None


def _expected_choices(
    config: TrainingConfig, settings: Settings, dataset: DatasetReport, facts: ModelFacts, *, limit: int | None
) -> list[Choice]:
    """Return the choices for what Prepare expects, the fastest first."""
    freedom = freedom_for(config, settings, dataset)
    if not config.on_accelerator and limit is None:
        freedom = _at_once(freedom)
    return choices_for(config, dataset, facts, freedom, is_gpu=config.on_accelerator)


def _at_once(freedom: Freedom) -> Freedom:
    """Return what is done on a CPU without a limit: all rows of a step go at once, as they are."""
    rows = freedom.micro_batch or freedom.batch_size
    return replace(freedom, micro_batch=rows, checkpointing=bool(freedom.checkpointing))


def freedom_for(config: TrainingConfig, settings: Settings, dataset: DatasetReport) -> Freedom:
    """Return what `spec.plan` leaves open for one process."""
    return freedom_of(
        config.plan,
        batch_size=settings.batch_size // config.world.ranks,
        typical_length=max(1, dataset.tokens // dataset.rows),
    )


def beyond(found: list[Choice], best: Choice) -> str:
    """Say what a faster choice would have taken."""
    if found[0] is best:
        return ""
    return f"; micro-batch {found[0].micro_batch}{checkpointing_of(found[0])} would take {in_words(found[0])}"


def choices_for(
    config: TrainingConfig, dataset: DatasetReport, facts: ModelFacts, freedom: Freedom, *, is_gpu: bool
) -> list[Choice]:
    """Return the choices with what each takes of a device, the fastest first."""
    shape = replace(
        shape_of(
            method=config.method,
            lora=config.lora,
            plan=config.plan,
            quantization=config.quantization,
            longest=dataset.longest,
        ),
        width=2 if is_gpu else 4,
        on_cpu=not is_gpu,
        shards=config.world.ranks if config.world.strategy.gathers_twice else 1,
    )
    shape = replace(shape, reference=reference_bytes(config, facts, shape))
    half_speed = HALF_SPEED_TOKENS if is_gpu else CPU_HALF_SPEED_TOKENS
    return choices(facts, shape, replace(freedom, half_speed_tokens=half_speed))


def in_words(choice: Choice) -> str:
    """Return the size of a choice."""
    return quantity(choice.memory.total) if choice.memory else "an unknown amount"


def _takes(choice: Choice, dataset: DatasetReport) -> str:
    rows = f"rows of {dataset.longest} tokens take {in_words(choice)}"
    return f"{rows} with micro-batch {choice.micro_batch}{checkpointing_of(choice)}"


def _larger(config: TrainingConfig) -> str:
    return "take a larger GPU" if config.on_accelerator else "raise spec.resources.limits.memory and ask for a retry"


def checkpointing_of(choice: Choice) -> str:
    """Return whether activations are computed again."""
    return " and checkpointing" if choice.checkpointing else " without checkpointing"
