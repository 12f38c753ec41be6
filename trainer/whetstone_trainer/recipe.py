"""The recipe: everything that decides what adapter comes out, and its digest."""

import hashlib
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from whetstone_api.digests import canonical_digest
from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.training_backend import Backend
from whetstone_api.training_data import TooLong
from whetstone_api.training_evaluation import EvaluationSpec
from whetstone_api.training_settings import Method
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.fingerprint import model_fingerprint

from whetstone_trainer.dataset import file_digest
from whetstone_trainer.errors import UserError
from whetstone_trainer.init_adapter import folds, read_init_adapter
from whetstone_trainer.preference_rows import PAIRS, preference_of
from whetstone_trainer.quantization import require_quantizable
from whetstone_trainer.reference import read_reference

TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")
MASK = "assistant-turns/2"
"""How rows are rendered, masked and left out (`render.py`, `prepare.py`); another way is another recipe."""


LEARNING_RATES = {Method.SFT: "2e-4", Method.DPO: "5e-6"}
"""Peak learning rate of an adapter where the spec gives none: what TRL's documentation advises."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyperparameters as they take effect.

    Args:
        epochs: Passes over the data; None with `max_steps`.
        max_steps: Optimizer steps; None with `epochs`.
        batch_size: Rows per optimizer step.
        micro_batch_size: Rows per forward pass where they are fixed; divides `batch_size`, which it is otherwise.
        max_length: Longest row in tokens.
        learning_rate: Peak learning rate.
        warmup_ratio: Share of the steps in which the learning rate rises, 0 to below 1.
        dropout: Dropout on the adapter's input, 0 to below 1.
        seed: Seed of everything random.
    """

    epochs: int | None
    max_steps: int | None
    batch_size: int
    micro_batch_size: int
    max_length: int
    learning_rate: Decimal
    warmup_ratio: Decimal
    dropout: Decimal
    seed: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What was asked.

    Args:
        content: JSON without floats: method, base, data, adapter shape, hyperparameters.
        digest: Canonical digest of `content`.
        base_fingerprint: Fingerprint of the base model's folder.
        init_tasks: Digests of the tasks that the adapter to go on from was trained on.
        dataset_digests: Digest of each dataset's file, in the spec's order.
        settings: Hyperparameters as they take effect.
    """

    content: dict[str, Any]
    digest: str
    base_fingerprint: str
    init_tasks: list[str]
    dataset_digests: list[str]
    settings: Settings


def read_recipe(config: TrainingConfig) -> Recipe:
    """Read base model and data and return what is asked.

    Raises:
        UserError: The base model or a dataset is missing, or the hyperparameters cannot work.
    """
    folder = Path(config.base_model_path)
    fingerprint = base_fingerprint(config)
    init = read_init_adapter(config, fingerprint) if config.init_adapter_path else None
    digests = [file_digest(dataset) for dataset in config.datasets]
    settings = effective_settings(config, context_of(folder))
    if config.quantization.applied:
        require_quantizable(config)
    content = {
        **_always(config, settings, fingerprint=fingerprint, init=init.digest if init else None, digests=digests),
        **_where_set(config, fingerprint),
    }
    return Recipe(
        content=content,
        digest=canonical_digest(content),
        base_fingerprint=fingerprint,
        init_tasks=init.task_digests if init else [],
        dataset_digests=digests,
        settings=settings,
    )


def _always(
    config: TrainingConfig, settings: Settings, *, fingerprint: str, init: str | None, digests: list[str]
) -> dict[str, Any]:
    return {
        "method": config.method,
        "mask": MASK,
        "baseFingerprint": fingerprint,
        "chatTemplate": _template_digest(Path(config.base_model_path)),
        "initAdapter": init,
        "datasets": [
            {"name": dataset.name, "digest": digest, **use_content(dataset)}
            for dataset, digest in zip(config.datasets, digests, strict=True)
        ],
        "loss": {"target": config.loss.target, **({"maskSuboptimal": True} if config.loss.mask_suboptimal else {})},
        "lora": {
            "rank": config.lora.rank,
            "alpha": config.lora.alpha,
            "dropout": _plain(settings.dropout),
            "rsLora": config.lora.rs_lora,
            "targetModules": sorted(config.lora.target_modules) if config.lora.target_modules else "all-linear",
        },
        "hyperparameters": {
            "epochs": settings.epochs,
            "maxSteps": settings.max_steps,
            "batchSize": settings.batch_size,
            "microBatchSize": settings.micro_batch_size,
            "maxLength": settings.max_length,
            "learningRate": _plain(settings.learning_rate),
            "warmupRatio": _plain(settings.warmup_ratio),
            "schedule": "cosine",
            "seed": settings.seed,
        },
    }


def _where_set(config: TrainingConfig, fingerprint: str) -> dict[str, Any]:
    """Return what counts only where a job says it, so that a job that does not has the recipe that it always had."""
    content: dict[str, Any] = {}
    if config.base_model_hub_id is not None:
        # It is in the adapter's own configuration, which the content digest covers.
        content["baseHubId"] = config.base_model_hub_id
    if config.backend is not Backend.TRL:
        content["backend"] = config.backend
    if config.preparation.too_long is not TooLong.FAIL:
        content["tooLong"] = config.preparation.too_long
    if config.evaluation is not None:
        content["evaluation"] = held_out_content(config.evaluation)
    if folds(config):
        content["initMode"] = config.init_adapter_mode
    if config.quantization.applied:
        content["quantization"] = config.quantization
    if config.world.ranks > 1:
        # The rows of a step are summed up in another order, and dropout falls otherwise; the strategy changes nothing.
        content["distributed"] = {"ranks": config.world.ranks}
    if preference := preference_of(config):
        content["preference"] = {
            "pairs": PAIRS,
            "granularity": preference.granularity,
            "losses": {loss.type: _plain(Decimal(loss.weight)) for loss in preference.losses},
            "beta": _plain(Decimal(preference.beta)),
        }
        if reference := read_reference(config, fingerprint):
            content["preference"]["reference"] = reference
    return content


def use_content(dataset: DatasetFile) -> dict[str, Any]:
    """Return what the recipe says of the rows of a dataset that are used, and how often; empty for all of them once."""
    content: dict[str, Any] = {}
    if dataset.weight is not None and Decimal(dataset.weight) != 1:
        content["weight"] = _plain(Decimal(dataset.weight))
    if dataset.filter is not None:
        least, most = dataset.filter.minimum_reward, dataset.filter.maximum_turns
        content["filter"] = {"minimumReward": None if least is None else _plain(Decimal(least)), "maximumTurns": most}
    return content


def held_out_content(evaluation: EvaluationSpec) -> dict[str, Any]:
    """Return what the recipe says of the rows that are held out."""
    content: dict[str, Any] = {"dataset": evaluation.dataset or ""}
    if evaluation.share is not None:
        content = {"share": _plain(Decimal(evaluation.share))}
    # An evaluation draws from the random state that dropout draws from, so its steps are part of the recipe.
    if evaluation.every_steps is not None:
        content["everySteps"] = evaluation.every_steps
    if evaluation.early_stopping is not None:
        content["earlyStopping"] = evaluation.early_stopping.to_wire()
    return content


def base_fingerprint(config: TrainingConfig) -> str:
    """Return the fingerprint of the base model's folder.

    Raises:
        UserError: `BASE_MODEL_NOT_FOUND`.
    """
    try:
        return model_fingerprint(Path(config.base_model_path))
    except ArtifactError as error:
        raise UserError(error.reason, f"spec.baseModel ({config.base_model_source}): {error.message}") from error


def context_of(folder: Path) -> int | None:
    """Return the base model's context in tokens, or None when its `config.json` does not say."""
    config = json.loads((folder / "config.json").read_bytes())
    for part in (config, config.get("text_config") or {}):
        if isinstance(length := part.get("max_position_embeddings"), int):
            return length
    return None


def effective_settings(config: TrainingConfig, context: int | None) -> Settings:
    """Fill in defaults and check what the schema cannot.

    Args:
        config: The job's configuration.
        context: The base model's context in tokens, where known.

    Raises:
        UserError: `INVALID_SPEC` with field and fix.
    """
    asked = config.hyperparameters
    micro = _micro_batch(config)
    if asked.max_length and context and asked.max_length > context:
        raise UserError(
            Reason.INVALID_SPEC,
            f"spec.hyperparameters.maxLength is {asked.max_length}, the base model reads {context} tokens; lower it",
        )
    max_length = asked.max_length or context
    if max_length is None:
        raise UserError(
            Reason.INVALID_SPEC,
            f"the config.json of {config.base_model_source} does not name its context (max_position_embeddings);"
            " set spec.hyperparameters.maxLength",
        )
    learning_rate = Decimal(asked.learning_rate or LEARNING_RATES[config.method])
    if learning_rate == 0:
        raise UserError(Reason.INVALID_SPEC, "spec.hyperparameters.learningRate is 0: nothing would be learned")
    return Settings(
        epochs=None if asked.max_steps else (asked.epochs or 1),
        max_steps=asked.max_steps,
        batch_size=asked.batch_size,
        micro_batch_size=micro,
        max_length=max_length,
        learning_rate=learning_rate,
        warmup_ratio=_share(asked.warmup_ratio, "spec.hyperparameters.warmupRatio"),
        dropout=_share(config.lora.dropout, "spec.lora.dropout"),
        seed=asked.seed,
    )


def _micro_batch(config: TrainingConfig) -> int:
    """Return the rows of a forward pass: what is asked, or all that one process takes of a step."""
    asked, ranks = config.hyperparameters, config.world.ranks
    if asked.batch_size % ranks:
        raise UserError(
            Reason.INVALID_SPEC,
            f"spec.hyperparameters.batchSize is {asked.batch_size}, which cannot be shared evenly by the {ranks}"
            f" processes of spec.distributed ({config.world.nodes} x {config.world.processes_per_node}); choose a"
            f" multiple of {ranks}",
        )
    rows = asked.batch_size // ranks
    fixed = config.plan.micro_batch_size
    micro = fixed if isinstance(fixed, int) else rows
    if rows % micro:
        share = f" ({rows} rows for each of {ranks} processes)" if ranks > 1 else ""
        raise UserError(
            Reason.INVALID_SPEC,
            f"spec.plan.microBatchSize is {micro}, which does not divide hyperparameters.batchSize"
            f" {asked.batch_size}{share}; choose a divisor of {rows}",
        )
    return micro


def _share(text: str, field: str) -> Decimal:
    value = Decimal(text)
    if value >= 1:
        raise UserError(Reason.INVALID_SPEC, f"{field} is {text}; it must be from 0 to below 1")
    return value


def _plain(value: Decimal) -> str:
    """Write a decimal in one form, so that 2e-4 and 0.0002 are the same recipe."""
    return format(value.normalize(), "f")


def _template_digest(folder: Path) -> str:
    parts = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in TEMPLATE_FILES
        if (folder / name).is_file()
    }
    return canonical_digest(parts)
