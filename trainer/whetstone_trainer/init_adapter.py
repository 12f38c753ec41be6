"""The adapter that a training goes on from: checked before anything is asked for, loaded as the trainable one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from whetstone_api.adapter_artifact import CONFIG_FILE, LINEAGE_FILE, Lineage
from whetstone_api.jobs import TrainingConfig
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import verify_adapter
from whetstone_artifacts.preflight import check_adapter

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
    shape = json.loads((folder / CONFIG_FILE).read_bytes())
    _require_shape(config, shape, field=field)
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
