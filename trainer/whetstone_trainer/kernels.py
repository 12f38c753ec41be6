"""What computes the attention of a training, and whether cuDNN's kernels may be among it."""

from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_data import DatasetReport
from whetstone_api.training_plan import Attention
from whetstone_api.vocabulary import Reason

from whetstone_trainer.errors import UserError

KERNELS = {
    Attention.SDPA: "sdpa",
    Attention.FLASH_ATTENTION_2: "flash_attention_2",
    Attention.EAGER: "eager",
}
"""Kernels as transformers names them."""


def attention_of(config: TrainingConfig, *, flash_attention: bool) -> str:
    """Return the attention kernel, as transformers names it.

    Args:
        config: The job's configuration.
        flash_attention: Whether the kernels of `flash-attn` are there.

    Raises:
        UserError: `INVALID_SPEC`: one is asked for that is not there.
    """
    asked = config.plan.attention
    if asked is Attention.FLASH_ATTENTION_2 and not flash_attention:
        raise UserError(
            Reason.INVALID_SPEC,
            "spec.plan.attention is FlashAttention2, which needs a GPU and the library flash-attn in the trainer's"
            " image (spec.image); write SDPA or leave it out",
        )
    if asked is Attention.AUTO:
        asked = Attention.FLASH_ATTENTION_2 if flash_attention else Attention.SDPA
    return KERNELS[asked]


def cudnn_pays(attention: str, dataset: DatasetReport) -> tuple[bool, str]:
    """Return whether PyTorch may take cuDNN's attention, and why.

    cuDNN makes a plan for every new shape of a batch, forwards and backwards, which takes longer than a step on short
    rows; where most steps have the same shape its kernels are the fastest (docs/training-memory.md has both measured).

    Args:
        attention: The kernel.
        dataset: What Prepare found.
    """
    if attention != KERNELS[Attention.SDPA]:
        return False, ""
    typical = dataset.lengths.p50 if dataset.lengths else dataset.tokens // dataset.rows
    if typical >= dataset.longest:
        return True, "cuDNN may compute the attention, since most rows are equally long"
    return False, "cuDNN computes no attention, since it plans anew for every length of rows"
