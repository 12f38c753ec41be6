"""Validate and Prepare: from the user's files to masked token rows. Loads no weights and needs no accelerator."""

import logging
import secrets
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.vocabulary import Reason

from whetstone_trainer.bounds import require_bounds
from whetstone_trainer.errors import UserError
from whetstone_trainer.preparation import Preparation
from whetstone_trainer.prepared import PREPARED_FOLDER, REPORT_FILE, PreparedReport, read_report
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.render import Renderer
from whetstone_trainer.row_pool import Beside, Here, processes_for
from whetstone_trainer.row_work import RowWork
from whetstone_trainer.snapshots import seal, verified_recipe

log = logging.getLogger(__name__)


def prepare_data(config: TrainingConfig, recipe: Recipe, *, processes: int | None = None) -> PreparedReport:
    """Make the prepared data of a recipe in the workspace, or find it there.

    Args:
        config: The job's configuration.
        recipe: What is asked.
        processes: How many render the rows, which changes nothing but the time; None: what the data is worth.

    Returns:
        The report of the data.

    Raises:
        UserError: A dataset is wrong or out of bounds, or the base model has no usable chat template.
        WorkerLostError: A process that renders was killed.
    """
    workspace = Path(config.workspace_path)
    place = workspace / PREPARED_FOLDER
    if verified_recipe(place) == recipe.digest and (report := read_report(workspace)).counts:
        log.info("the prepared data of this recipe is at %s and is used", place)
        # Bounds are no part of the recipe: another object may ask for others.
        require_bounds(config, report.counts)
        return report
    workspace.mkdir(parents=True, exist_ok=True)
    for stale in workspace.glob(f".{PREPARED_FOLDER}.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = workspace / f".{PREPARED_FOLDER}.partial-{secrets.token_hex(4)}"
    temporary.mkdir()
    try:
        report = _write(config, recipe, temporary, processes=processes or processes_for(config))
        seal(temporary, place, recipe_digest=recipe.digest)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return report


def load_tokenizer(config: TrainingConfig) -> Any:
    """Load the base model's tokenizer.

    Raises:
        UserError: `NO_CHAT_TEMPLATE`, or `BASE_MODEL_NOT_FOUND` for a folder without a usable tokenizer.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(config.base_model_path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            Reason.BASE_MODEL_NOT_FOUND,
            f"spec.baseModel ({config.base_model_source}): its tokenizer cannot be read ({error});"
            " put tokenizer.json and tokenizer_config.json into the folder",
        ) from error
    if not tokenizer.chat_template:
        raise UserError(
            Reason.NO_CHAT_TEMPLATE,
            f"spec.baseModel ({config.base_model_source}): the model has no chat template; use an instruct model or"
            " put a chat_template.jinja into its folder",
        )
    return tokenizer


def _write(config: TrainingConfig, recipe: Recipe, folder: Path, *, processes: int) -> PreparedReport:
    settings = recipe.settings
    with Beside(config, settings, processes=processes) if processes > 1 else nullcontext() as beside:
        renderer = Renderer(load_tokenizer(config))
        preparation = Preparation(config, recipe, renderer)
        work = RowWork(config, max_length=settings.max_length, seed=settings.seed, renderer=renderer)
        preparation.write(folder, beside or Here(work))
    report = preparation.report()
    (folder / REPORT_FILE).write_text(report.to_json())
    return report
