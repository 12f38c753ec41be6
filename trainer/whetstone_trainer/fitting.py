"""Training that fits its device: with the chosen plan, and with a smaller one when memory runs out all the same."""

import logging
import os
from pathlib import Path

import torch
from torch._dynamo.exc import TorchDynamoException
from whetstone_api.jobs import TrainingConfig
from whetstone_api.vocabulary import Reason

from whetstone_trainer.attempts import POD_VARIABLE, begin, go_on, remember
from whetstone_trainer.device import find_device, release_memory
from whetstone_trainer.distributed import Ranks
from whetstone_trainer.errors import StoppedError, UserError
from whetstone_trainer.plan import Plan, make_plan
from whetstone_trainer.prepared import PreparedReport
from whetstone_trainer.progress import Progress
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.stopping import StopSignal
from whetstone_trainer.train import Trained, train_adapter

WORDS = 200
"""Characters of an error that go into a plan's reason."""
NO_MAIN_MEMORY = "DefaultCPUAllocator: "
"""What PyTorch's error says where main memory is refused; it has no class of its own."""
log = logging.getLogger(__name__)


def train_fitting(
    config: TrainingConfig,
    recipe: Recipe,
    *,
    prepared: PreparedReport,
    progress: Progress,
    stop: StopSignal,
    ranks: Ranks,
) -> Trained:
    """Train to the last step, from the newest checkpoint with another plan where memory runs out or compiling fails.

    Args:
        config: The job's configuration.
        recipe: What is asked.
        prepared: Report of the prepared data in the workspace.
        progress: Where steps are reported.
        stop: SIGTERM.
        ranks: The processes that train together, met already.

    Raises:
        UserError: As of `train_adapter`, or `DEVICE_TOO_SMALL` when no smaller plan is left.
        StoppedError: SIGTERM came, or the other processes must start anew with the smaller plan too.
    """
    workspace, digest = Path(config.workspace_path), recipe.digest
    device = find_device(sharing=ranks.place.local_size)
    plan = make_plan(config, recipe.settings, prepared.dataset, device)
    if ranks.place.is_first:
        plan = go_on(plan, workspace, recipe_digest=digest, device=device, killed_pods=config.killed_pods)
    # Rank 0's for all: another process may have seen other free memory, or a plan that was remembered a moment ago.
    plan = ranks.told(plan)
    pods = ranks.gathered(os.environ.get(POD_VARIABLE, ""))
    while True:
        log.info("plan: %s", plan.chosen().to_wire())
        if ranks.place.is_first:
            begin(plan, workspace, recipe_digest=digest, device=device, pods=pods)
        progress.planned(plan.chosen())
        try:
            return train_adapter(config, recipe, plan, prepared=prepared, progress=progress, stop=stop, ranks=ranks)
        except TorchDynamoException as error:
            if not (plan.compiled or plan.tries_compiling):
                raise
            words = str(error).strip().partition("\n")[0][:WORDS]
            log.warning("the layers cannot be compiled here (%s); going on without", words)
            plan = plan.uncompiled(words)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            words = str(error).partition(". ")[0][:WORDS]
            plan = _smaller(plan, words)
        remember(plan, workspace, recipe_digest=digest, device=device)
        release_memory()
        if config.world.ranks > 1:
            raise StoppedError(f"the plan does not work on a device ({words}); all processes start again with another")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error of PyTorch's says that the device, or main memory, has no room left."""
    return isinstance(error, torch.OutOfMemoryError) or NO_MAIN_MEMORY in str(error)


def _smaller(plan: Plan, words: str) -> Plan:
    smaller = plan.smaller()
    if smaller is None:
        raise UserError(
            Reason.DEVICE_TOO_SMALL,
            f"the device ran out of memory ({words}) with micro-batch {plan.micro_batch_size}, and spec.plan leaves"
            " nothing smaller; leave microBatchSize and gradientCheckpointing out, shorten the longest rows"
            " (hyperparameters.maxLength), lower lora.rank, or take a larger GPU",
        )
    log.warning("out of memory (%s); going on with micro-batch %d", words, smaller.micro_batch_size)
    return smaller
