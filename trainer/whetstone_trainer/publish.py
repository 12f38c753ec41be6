"""Verify and Publish: the adapter's folder, checked, with all that tells of it, moved to its place by one rename."""

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import (
    CONFIG_FILE,
    LINEAGE_FILE,
    MANIFEST_FILE,
    PROBE_FILE,
    WEIGHTS_FILE,
    BaseIdentity,
    Lineage,
    Manifest,
    Probe,
    is_tokenizer_file,
)
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_plan import ChosenPlan
from whetstone_api.training_result import PublishedAdapter
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.folders import adapter_digest, publish_folder, write_manifest
from whetstone_artifacts.preflight import check_adapter

from whetstone_trainer.errors import UserError
from whetstone_trainer.init_adapter import published_rank
from whetstone_trainer.model_card import write_card
from whetstone_trainer.prepared import PreparedReport
from whetstone_trainer.recipe import Recipe
from whetstone_trainer.record import training_record, write_record

PACKAGES = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "flash-attn",
    "peft",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
    "unsloth",
    "whetstone",
)


def save_adapter(model: Any, folder: Path, *, base: str) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`; equal weights give equal bytes.

    Args:
        model: PEFT model.
        folder: Where to.
        base: Hub id or URI of the base model; a path inside this container would mean nothing elsewhere.
    """
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    # Safetensors writes for its own user only; the servers that mount the store may run as another.
    (folder / WEIGHTS_FILE).chmod(0o644)
    path = folder / CONFIG_FILE
    config = json.loads(path.read_bytes())
    if isinstance(config.get("target_modules"), list):
        # A set inside PEFT: its order differs from process to process, and the digest covers this file.
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def verify_saved(folder: Path, config: TrainingConfig) -> None:
    """Check the saved adapter as a server will, and that it is not the untrained one.

    Raises:
        UserError: `TRAINING_DIVERGED` for weights that are not finite or still zero.
        ArtifactError: What a server would refuse.
    """
    from safetensors import safe_open

    changed = False
    with safe_open(folder / WEIGHTS_FILE, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - not a mapping
            tensor = tensors.get_tensor(name)
            if not bool(tensor.isfinite().all()):
                raise UserError(
                    Reason.TRAINING_DIVERGED,
                    f"tensor {name} of the adapter is not finite; lower spec.hyperparameters.learningRate",
                )
            changed = changed or (".lora_B." in name and bool(tensor.any()))
    if not changed:
        raise UserError(
            Reason.TRAINING_DIVERGED,
            "every lora_B of the adapter is zero, so it changes nothing; raise spec.hyperparameters.learningRate or"
            " the number of steps",
        )
    require_loadable(folder, config)


def require_loadable(folder: Path, config: TrainingConfig) -> None:
    """Check a saved adapter as a server will.

    Raises:
        ArtifactError: What a server would refuse.
    """
    model_config = json.loads((Path(config.base_model_path) / "config.json").read_bytes())
    check_adapter(folder, base_fingerprint=None, max_rank=published_rank(config), model_config=model_config)


def publish_adapter(
    folder: Path,
    config: TrainingConfig,
    recipe: Recipe,
    *,
    prepared: PreparedReport,
    probe: Probe,
    metrics: dict[str, str],
    plan: ChosenPlan,
    step: int,
    history: Sequence[Mapping[str, Any]],
) -> PublishedAdapter:
    """Complete the folder and move it to the output place.

    Args:
        folder: Folder beside the place with the saved adapter.
        config: The job's configuration.
        recipe: What was asked.
        prepared: Report of the training data.
        probe: The recorded effect.
        metrics: Final figures as decimals.
        plan: How the device was used.
        step: Optimizer step whose weights these are.
        history: Transformers' log of all steps.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED`.
    """
    lineage = Lineage(
        recipe_digest=recipe.digest,
        recipe=recipe.content,
        base=BaseIdentity(source=config.base_model_source, fingerprint=recipe.base_fingerprint),
        datasets=prepared.datasets,
        task_digests=sorted({*prepared.task_digests, *recipe.init_tasks}),
        object_uid=config.object.uid,
        object_name=config.object.name,
        namespace=config.object.namespace,
        metrics=metrics,
        plan=plan.to_wire(),
        step=step,
        versions=_versions(),
        image=config.image,
        published_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
    (folder / PROBE_FILE).write_text(probe.to_json())
    (folder / LINEAGE_FILE).write_text(lineage.to_json())
    copy_tokenizer(Path(config.base_model_path), folder)
    write_record(folder, training_record(history, published_step=step, final=metrics))
    write_card(folder, config, lineage, digest=adapter_digest(folder))
    write_manifest(folder)
    publish_folder(folder, Path(config.output_path))
    return published(config, lineage)


def copy_tokenizer(base: Path, folder: Path) -> None:
    """Put the base's tokenizer and chat template beside the adapter, where users of PEFT look for them."""
    for path in sorted(base.iterdir()):
        if is_tokenizer_file(path.name) and path.is_file():
            shutil.copyfile(path, folder / path.name)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        # Run from a source tree, Whetstone itself is not an installed package.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def published(config: TrainingConfig, lineage: Lineage) -> PublishedAdapter:
    """Describe the adapter at the output place.

    Args:
        config: The job's configuration.
        lineage: Its lineage.
    """
    place = Path(config.output_path)
    manifest = Manifest.model_validate_json((place / MANIFEST_FILE).read_bytes())
    return PublishedAdapter(
        uri=config.output_uri,
        digest=manifest.digest,
        rank=int(json.loads((place / CONFIG_FILE).read_bytes())["r"]),
        bytes=sum(entry.size for entry in manifest.files.values()),
        published_at=lineage.published_at,
    )
