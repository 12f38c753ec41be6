"""How a training uses its device: chosen from the estimate and the free memory, unless `spec.plan` fixes it.

Nothing here changes what is learned: rows of an optimizer step, their order and the weight of each token stay.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from whetstone_api.jobs import TrainingConfig
from whetstone_api.model_facts import ModelFacts
from whetstone_api.training_backend import Backend
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_plan import Attention, ChosenPlan, Packing, Switch
from whetstone_api.training_settings import Method
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.model_facts import read_model_facts
from whetstone_artifacts.serving_memory import quantity
from whetstone_artifacts.training_choice import Choice, Freedom, fastest, most_sparing, next_smaller

from whetstone_trainer.errors import UserError
from whetstone_trainer.kernels import KERNELS, attention_of, cudnn_pays
from whetstone_trainer.memory_estimate import beyond, checkpointing_of, choices_for, freedom_for, in_words
from whetstone_trainer.recipe import Settings

LARGE_MODEL = 1_000_000_000
"""Parameters from which activations are computed again where no estimate says whether they fit."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a training runs on.

    Args:
        is_gpu: Whether it is an accelerator.
        free: Its free memory in bytes, on a CPU the container's limit for one process; None where it is not known.
        flash_attention: Whether the kernels of `flash-attn` are there.
        compiler: Whether there is a C compiler, which compiled layers need.
    """

    is_gpu: bool
    free: int | None = None
    flash_attention: bool = False
    compiler: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a training uses its device.

    Args:
        choice: Micro-batch and checkpointing.
        freedom: What of them may be chosen.
        padding_free: Whether rows follow each other without padding.
        attention: Attention kernel as transformers names it.
        cudnn: Whether PyTorch's attention may be cuDNN's.
        compiled: Whether the layers are compiled.
        tries_compiling: Whether the first steps are to show whether compiling pays.
        reason: Why it is so.
    """

    choice: Choice
    freedom: Freedom
    padding_free: bool
    attention: str
    compiled: bool
    reason: str
    cudnn: bool = False
    tries_compiling: bool = False

    @property
    def micro_batch_size(self) -> int:
        """Rows of a forward pass."""
        return self.choice.micro_batch

    @property
    def checkpointing(self) -> bool:
        """Whether activations are computed again."""
        return self.choice.checkpointing

    @property
    def words(self) -> str:
        """What was chosen, in words."""
        return f"micro-batch {self.micro_batch_size}{checkpointing_of(self.choice)}"

    @property
    def bounds(self) -> str:
        """Why nothing smaller is left, in words."""
        fields = {
            "microBatchSize": self.freedom.micro_batch is not None and self.micro_batch_size > 1,
            "gradientCheckpointing": self.freedom.checkpointing is False,
        }
        fixed = " and ".join(f"spec.plan.{name}" for name, is_fixed in fields.items() if is_fixed)
        return f"{fixed} allows nothing smaller: leave it out in a new job" if fixed else "there is nothing smaller"

    def smaller(self, fate: str = "ran out of memory") -> "Plan | None":
        """Return the plan to go on with after this one did not fit, or None.

        Args:
            fate: What became of this one.
        """
        choice = next_smaller(self.choice, self.freedom)
        if choice is None:
            return None
        how = "computed again" if choice.checkpointing else "kept"
        reason = (
            f"micro-batch {self.micro_batch_size} {fate}, so {choice.micro_batch} with activations {how};"
            f" before that: {self.reason}"
        )
        return replace(self, choice=choice, reason=reason)

    def uncompiled(self, words: str) -> "Plan":
        """Return the plan to go on with where compiling failed.

        Args:
            words: How it failed.
        """
        reason = f"compiling failed ({words}); before that: {self.reason}"
        return replace(self, compiled=False, tries_compiling=False, reason=reason)

    def chosen(self, attention: str | None = None) -> ChosenPlan:
        """Return the plan for status and lineage.

        Args:
            attention: The kernel that the model has in the end.
        """
        return ChosenPlan(
            micro_batch_size=self.micro_batch_size,
            gradient_checkpointing=self.checkpointing,
            packing=Packing.PADDING_FREE if self.padding_free else Packing.PADDED,
            attention=attention or self.attention,
            compiled=self.compiled,
            reason=self.reason[:1024],
        )


def make_plan(config: TrainingConfig, settings: Settings, dataset: DatasetReport, device: Device) -> Plan:
    """Choose what `spec.plan` leaves open.

    Args:
        config: The job's configuration.
        settings: Hyperparameters as they take effect.
        dataset: What Prepare found.
        device: What the training runs on.

    Raises:
        UserError: `INVALID_SPEC`: something is fixed that this device or image cannot do.
    """
    facts = read_model_facts(Path(config.base_model_path))
    attention = attention_of(config, flash_attention=device.flash_attention)
    cudnn, cudnn_reason = cudnn_pays(attention, dataset) if device.is_gpu else (False, "")
    padding_free, packing_reason = _packing(config, attention)
    freedom = freedom_for(config, settings, dataset)
    choice, memory_reason = _choose(config, dataset, facts, freedom, device)
    compiled, compile_reason = _compiled(config, device)
    return Plan(
        choice=choice,
        freedom=freedom,
        padding_free=padding_free,
        attention=attention,
        cudnn=cudnn,
        compiled=bool(compiled),
        tries_compiling=compiled is None,
        reason="; ".join(filter(None, (memory_reason, packing_reason, cudnn_reason, compile_reason, *_shared(config)))),
    )


def _choose(
    config: TrainingConfig, dataset: DatasetReport, facts: ModelFacts | None, freedom: Freedom, device: Device
) -> tuple[Choice, str]:
    rows = freedom.micro_batch or freedom.batch_size
    if not device.is_gpu and (facts is None or device.free is None):
        choice = Choice(micro_batch=rows, checkpointing=bool(freedom.checkpointing), memory=None)
        return choice, "on a CPU all rows of a step go at once, and activations are kept"
    if facts is None or device.free is None:
        again = freedom.checkpointing
        large = facts is None or facts.parameters >= LARGE_MODEL
        choice = Choice(micro_batch=rows, checkpointing=large if again is None else again, memory=None)
        return choice, "there is no estimate for this architecture: all rows of a step are tried at once"
    found = choices_for(config, dataset, facts, freedom, is_gpu=device.is_gpu)
    best = fastest(found, free=device.free)
    if best is None:
        best = most_sparing(found)
        return best, f"{in_words(best)} is estimated for the least, more than the {quantity(device.free)} that are free"
    return best, f"{in_words(best)} is estimated, {quantity(device.free)} are free{beyond(found, best)}"


def _packing(config: TrainingConfig, attention: str) -> tuple[bool, str]:
    asked, flash = config.plan.packing, attention == KERNELS[Attention.FLASH_ATTENTION_2]
    if config.method is not Method.SFT:
        if asked is Packing.PADDING_FREE:
            raise UserError(
                Reason.INVALID_SPEC, f"spec.plan.packing is PaddingFree, which {config.method} cannot do; leave it out"
            )
        return False, f"rows are padded, since {config.method} compares them in pairs"
    if asked is not Packing.AUTO:
        return asked is Packing.PADDING_FREE, f"packing is {asked} as asked"
    if flash:
        return True, "rows follow each other without padding, since the attention kernel keeps them apart"
    return False, f"rows are padded, since {attention} would compute the attention of all rows with each other"


def _compiled(config: TrainingConfig, device: Device) -> tuple[bool | None, str]:
    """Return whether the layers are compiled, None where the first steps are to show it, and why."""
    if config.backend is Backend.UNSLOTH:
        return False, "Unsloth compiles by itself"
    asked = config.plan.compile
    if asked is Switch.ENABLED and not (device.is_gpu and device.compiler):
        raise UserError(
            Reason.INVALID_SPEC,
            "spec.plan.compile is Enabled, which needs a GPU and a C compiler in the trainer's image (spec.image);"
            " leave it out, or name an image with gcc",
        )
    if asked is not Switch.AUTO:
        return asked is Switch.ENABLED, f"compile is {asked} as asked"
    if not device.is_gpu:
        return False, "nothing is compiled on a CPU"
    if config.quantization.applied:
        return False, "nothing is compiled on a quantized base"
    if not device.compiler:
        return False, "nothing is compiled, since the image has no C compiler"
    return None, "the first steps show whether compiling pays"


def _shared(config: TrainingConfig) -> list[str]:
    ranks = config.world.ranks
    if ranks == 1:
        return []
    strategy = config.world.strategy
    held = "a share of the base model" if strategy.shares_base else "the whole base model"
    until = (
        ""
        if strategy.gathers_twice or not strategy.shares_base
        else ", and the whole of it at the end of a forward pass"
    )
    return [f"each of {ranks} processes holds {held}{until} ({strategy})"]
