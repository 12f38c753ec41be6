"""The adapter that a training goes on from: checked before anything is asked for, loaded as the trainable one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from whetstone_api.adapter_artifact import CONFIG_FILE, LINEAGE_FILE, Lineage
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_settings import InitMode
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import verify_adapter
from whetstone_artifacts.preflight import check_adapter
from whetstone_artifacts.rank import read_rank

from whetstone_trainer.errors import UserError

MAX_RANK = 512
SHAPE = {"rank": "r", "alpha": "lora_alpha", "rs_lora": "use_rslora"}
"""Fields of `spec.lora` that must be the adapter's own, with their names in `adapter_config.json`."""


@dataclass(frozen=True, kw_only=True)
class InitAdapter:
    """An adapter to go on from.

    Args:
        digest: Its content digest.
        task_digests: Digests of the tasks that it was trained on, where its lineage says so.
    """

    digest: str
    task_digests: list[str]


def read_init_adapter(config: TrainingConfig, base_fingerprint: str) -> InitAdapter:
    """Read the adapter whole and check that it can be gone on from.

    Args:
        config: The job's configuration.
        base_fingerprint: Fingerprint of the base model's folder.

    Raises:
        UserError: It is missing or damaged, belongs to another base, or has another shape than `spec.lora` says.
    """
    field, folder = f"spec.initAdapter ({config.init_adapter_source})", Path(config.init_adapter_path or "")
    digest = verify_given(folder, model=Path(config.base_model_path), fingerprint=base_fingerprint, field=field)
    if folds(config):
        _require_servable(config, field=field)
    else:
        _require_shape(config, json.loads((folder / CONFIG_FILE).read_bytes()), field=field)
    return InitAdapter(digest=digest, task_digests=_tasks(folder))


def verify_given(folder: Path, *, model: Path, fingerprint: str, field: str) -> str:
    """Read an adapter that a job names, and return its content digest.

    Args:
        folder: The adapter's folder.
        model: Folder of the model that it must fit.
        fingerprint: Fingerprint of that folder.
        field: Where the user named the adapter.

    Raises:
        UserError: It is missing or damaged, or belongs to another model.
    """
    model_config = json.loads((model / "config.json").read_bytes())
    try:
        digest = verify_adapter(folder, None).digest
        check_adapter(folder, base_fingerprint=fingerprint, max_rank=MAX_RANK, model_config=model_config)
    except ArtifactError as error:
        raise UserError(error.reason, f"{field}: {error.message}") from error
    return digest


def load_init_adapter(model: Any, config: TrainingConfig) -> Any:
    """Return the base model with the adapter on it, trainable.

    Args:
        model: The base model.
        config: The job's configuration.
    """
    from peft import PeftConfig, PeftModel

    shape = PeftConfig.from_pretrained(config.init_adapter_path)
    # The shape is the adapter's, but this training's dropout is not that of the one before.
    shape.lora_dropout = float(config.lora.dropout)
    return PeftModel.from_pretrained(model, config.init_adapter_path, config=shape, is_trainable=True)


def folds(config: TrainingConfig) -> bool:
    """Return whether the adapter to go on from becomes a part of the base model, and a new one is trained."""
    return config.init_adapter_path is not None and config.init_adapter_mode is InitMode.MERGE_THEN_NEW


def published_rank(config: TrainingConfig) -> int:
    """Return the rank of the adapter that the job publishes: its own, and that of one that it is stacked on."""
    below = read_rank(Path(config.init_adapter_path or "")) if folds(config) else None
    return config.lora.rank + (below or 0)


def _require_servable(config: TrainingConfig, *, field: str) -> None:
    """Refuse a stack of two adapters that no engine would load, or not the one of the base model's server."""
    rank = published_rank(config)
    sum_of = f"{field}: its rank of {rank - config.lora.rank} and spec.lora.rank of {config.lora.rank} make {rank}"
    if rank > MAX_RANK:
        raise UserError(
            Reason.INVALID_SPEC,
            f"{sum_of}, and engines load at most {MAX_RANK}; lower spec.lora.rank, or merge the first adapter into a"
            " model (output.merged) and train on that",
        )
    if config.served_rank is not None and rank > config.served_rank:
        raise UserError(
            Reason.RANK_NOT_SERVABLE,
            f"{sum_of}, above spec.adapterCapacity.maxRank ({config.served_rank}) of the ModelServer that"
            " spec.baseModel.modelServerRef names; raise maxRank there or set it to Auto, or create the job with a"
            " lower rank",
        )


def _require_shape(config: TrainingConfig, shape: dict[str, Any], *, field: str) -> None:
    for name, key in SHAPE.items():
        wanted, found = getattr(config.lora, name), shape.get(key)
        if (found or False) != wanted:
            spelled = {"rs_lora": "rsLora"}.get(name, name)
            raise UserError(
                Reason.INVALID_SPEC,
                f"{field}: its {key} is {found}, spec.lora.{spelled} says {wanted}; an adapter keeps its shape: write"
                f" {json.dumps(found or False)} there",
            )
    if config.lora.target_modules and set(config.lora.target_modules) != set(shape.get("target_modules") or []):
        raise UserError(
            Reason.INVALID_SPEC,
            f"{field}: it adapts {', '.join(sorted(shape.get('target_modules') or []))}; an adapter keeps its shape:"
            " leave spec.lora.targetModules out",
        )


def _tasks(folder: Path) -> list[str]:
    try:
        return Lineage.model_validate_json((folder / LINEAGE_FILE).read_bytes()).task_digests
    except (OSError, ValidationError):
        return []
