"""Merge: the adapter added into the base model's weights, held to the adapter's probe, published as a model folder."""

import json
import math
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import LINEAGE_FILE, PROBE_FILE, Lineage, Manifest, Probe
from whetstone_api.jobs import TrainingConfig
from whetstone_api.training_result import MergedModel
from whetstone_api.vocabulary import Reason
from whetstone_artifacts.folders import publish_folder, verify_adapter
from whetstone_artifacts.models import describe_model, record_model
from whetstone_artifacts.sources.remote import Content

from whetstone_trainer.errors import UserError
from whetstone_trainer.recipe import base_fingerprint

DEVIATION = 0.25
"""Share of the recorded effect (root mean square over tokens) by which a merged model may miss it: each weight is
rounded once more to the base's precision. A lost adapter misses it by 1, a halved scaling by about 0.5."""
NOISES = 4.0
"""The same in multiples of the probe's noise, for effects that are hardly more than it."""


def require_mergeable(config: TrainingConfig) -> None:
    """Refuse a base model whose weights nothing can be added to.

    Raises:
        UserError: `INVALID_SPEC`.
    """
    if config.merged_path is None:
        return
    quantized = json.loads((Path(config.base_model_path) / "config.json").read_bytes()).get("quantization_config")
    if quantized:
        method = quantized.get("quant_method", "unknown method")
        raise UserError(
            Reason.INVALID_SPEC,
            f"spec.output.merged: the weights of {config.base_model_source} are quantized ({method}), and adding to"
            " them would round the adapter away; train on the unquantized model, or leave output.merged out",
        )


def read_adapter(config: TrainingConfig) -> tuple[str, Lineage]:
    """Return digest and lineage of the published adapter, read whole.

    Raises:
        ArtifactError: It is not there, or not as it was published.
        UserError: `BASE_MODEL_NOT_FOUND`, also when the base model is another one by now.
    """
    place = Path(config.output_path)
    manifest = verify_adapter(place, None)
    lineage = Lineage.model_validate_json((place / LINEAGE_FILE).read_bytes())
    fingerprint = base_fingerprint(config)
    if fingerprint != lineage.base.fingerprint:
        raise UserError(
            Reason.BASE_MODEL_NOT_FOUND,
            f"spec.baseModel ({config.base_model_source}): its files are not those that the adapter was trained on"
            f" ({fingerprint[:19]} there, {lineage.base.fingerprint[:19]} trained on); restore them",
        )
    return manifest.digest, lineage


def merge_adapter(config: TrainingConfig, folder: Path) -> None:
    """Write base plus adapter, with the base's tokenizer and chat template, and check it by the adapter's probe.

    The sum is made and kept in the base checkpoint's own precision.

    Args:
        config: The job's configuration.
        folder: Where to.

    Raises:
        UserError: `MERGE_DIVERGED`.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = Path(config.base_model_path)
    with torch.inference_mode():
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
        merged = PeftModel.from_pretrained(model, config.output_path).merge_and_unload(safe_merge=True)
        merged.save_pretrained(str(folder), safe_serialization=True)
    for path in base.iterdir():
        is_weights = path.name.endswith((".safetensors", ".safetensors.index.json"))
        if Content.MODEL.takes(path.name) and path.is_file() and not is_weights and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    for path in folder.iterdir():
        # Safetensors writes for its own user only; servers may run as another.
        path.chmod(0o644)
    probe = Probe.model_validate_json((Path(config.output_path) / PROBE_FILE).read_bytes())
    judge_merged(probe, measured=_measure(folder, probe))


def judge_merged(probe: Probe, *, measured: Sequence[float]) -> None:
    """Hold a merged model to what the adapter did.

    Args:
        probe: The adapter's probe.
        measured: Log-probability of every answer token of every case under the merged model, nats.

    Raises:
        UserError: `MERGE_DIVERGED`.
    """
    base = list(chain.from_iterable(case.base_logprobs for case in probe.cases))
    adapter = list(chain.from_iterable(case.adapter_logprobs for case in probe.cases))
    size = _root_mean_square([one - other for one, other in zip(adapter, base, strict=True)])
    missed = _root_mean_square([one - other for one, other in zip(measured, adapter, strict=True)])
    bound = max(DEVIATION * size, NOISES * probe.noise)
    if not missed <= bound:
        raise UserError(
            Reason.MERGE_DIVERGED,
            f"the merged model misses the adapter's effect of {size:.3g} nats by {missed:.3g}, more than {bound:.3g};"
            " the adapter itself is published: serve it as an adapter, or merge into a base of higher precision",
        )


def publish_merged(folder: Path, config: TrainingConfig, *, adapter_digest: str, lineage: Lineage) -> MergedModel:
    """Complete the folder and move it to its place.

    Args:
        folder: Folder beside the place with the merged model.
        config: The job's configuration.
        adapter_digest: Content digest of the adapter.
        lineage: The adapter's lineage.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED`.
    """
    merged_lineage = lineage.model_copy(update={"merged_adapter": adapter_digest})
    (folder / LINEAGE_FILE).write_text(merged_lineage.to_json())
    manifest = describe_model(folder)
    record_model(folder, manifest)
    publish_folder(folder, Path(config.merged_path or ""))
    return merged_model(config, manifest)


def merged_model(config: TrainingConfig, manifest: Manifest) -> MergedModel:
    """Describe the merged model at its place."""
    size = sum(entry.size for entry in manifest.files.values())
    return MergedModel(uri=config.merged_uri or "", digest=manifest.digest, bytes=size)


def _measure(folder: Path, probe: Probe) -> list[float]:
    import torch
    from transformers import AutoModelForCausalLM

    from whetstone_trainer.probe import ProbeSequence, measure

    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, probe.dtype), local_files_only=True
    ).to("cuda" if torch.cuda.is_available() else "cpu")
    sequences = [ProbeSequence(token_ids=case.token_ids, answer_start=case.answer_start) for case in probe.cases]
    with torch.inference_mode():
        return list(chain.from_iterable(measure(model.eval(), sequences)))


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))
