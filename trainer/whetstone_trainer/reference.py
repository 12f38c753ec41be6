"""The reference that preferences are measured against, where the spec names one: checked before it is loaded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.model_facts import ModelFacts
from whetstone_api.training_settings import Method
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.fingerprint import model_fingerprint
from whetstone_artifacts.model_facts import read_model_facts
from whetstone_artifacts.rank import read_rank
from whetstone_artifacts.training_memory import TrainingShape, frozen_adapter, training_weights

from whetstone_trainer.errors import UserError
from whetstone_trainer.init_adapter import folds, verify_given


def read_reference(config: TrainingConfig, base_fingerprint: str) -> dict[str, str]:
    """Return what names the reference in a recipe, by digests; empty for the default reference.

    Args:
        config: The job's configuration.
        base_fingerprint: Fingerprint of the base model's folder.

    Raises:
        UserError: Model or adapter is missing or damaged, or does not fit the base model.
    """
    places = config.reference
    if places is None:
        return {}
    content: dict[str, str] = {}
    fingerprint, folder = base_fingerprint, Path(config.base_model_path)
    if places.model_path:
        folder = Path(places.model_path)
        field = f"spec.preference.reference.model ({places.model_source})"
        try:
            fingerprint = content["model"] = model_fingerprint(folder)
        except ArtifactError as error:
            raise UserError(error.reason, f"{field}: {error.message}") from error
        if _vocabulary(folder) != _vocabulary(Path(config.base_model_path)):
            raise UserError(
                Reason.BASE_MISMATCH,
                f"{field}: it has another vocabulary than spec.baseModel ({config.base_model_source}), so that its"
                " probabilities are of other tokens; name a model of the same family",
            )
    if places.adapter_path:
        field = f"spec.preference.reference.adapter ({places.adapter_source})"
        content["adapter"] = verify_given(Path(places.adapter_path), model=folder, fingerprint=fingerprint, field=field)
    return content


def reference_bytes(config: TrainingConfig, facts: ModelFacts, shape: TrainingShape) -> int:
    """Return the memory of the reference in bytes, as `dpo.py` loads it: beside the model that is trained.

    Args:
        config: The job's configuration.
        facts: The base model.
        shape: The training.
    """
    if config.method is not Method.DPO:
        return 0
    places = config.reference
    if places is None:
        # The adapter that is trained further is kept as it was.
        return frozen_adapter(facts, shape) if config.init_adapter_path and not folds(config) else 0
    if places.model_path or folds(config):
        other = read_model_facts(Path(places.model_path or config.base_model_path)) or facts
        return training_weights(other, replace(shape, quantization=None))
    folder = Path(places.adapter_path or "")
    return frozen_adapter(facts, replace(shape, rank=read_rank(folder) or shape.rank, targets=None))


def _vocabulary(folder: Path) -> Any:
    """Return what a model's tokens mean, as far as its folder says so."""
    try:
        tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
        added = {token["content"]: token["id"] for token in tokenizer.get("added_tokens", ())}
        return tokenizer["model"]["vocab"], added
    except (OSError, ValueError, KeyError, TypeError):
        return json.loads((folder / "config.json").read_bytes()).get("vocab_size")
