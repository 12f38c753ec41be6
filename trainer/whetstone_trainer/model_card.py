"""The model card: what the Hugging Face Hub shows of an adapter, and people read in its folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whetstone_api.adapter_artifact import CARD_FILE, CURVE_FILE, METRICS_FILE, Lineage
from whetstone_api.jobs import DatasetFile, TrainingConfig
from whetstone_api.source import split_hub_file
from whetstone_api.training_settings import Method

METHODS = {
    Method.SFT: "supervised fine-tuning (SFT)",
    Method.DPO: "direct preference optimization (DPO)",
}
_HUB_DATASETS = "hf://datasets/"


def write_card(folder: Path, config: TrainingConfig, lineage: Lineage, *, digest: str) -> None:
    """Write the card into the adapter's folder.

    Args:
        folder: Folder with the adapter and what else the card shows.
        config: The job's configuration.
        lineage: The adapter's lineage.
        digest: Its content digest.
    """
    from huggingface_hub import ModelCard

    parts = [
        f"---\n{_head(config, lineage)}\n---",
        f"# {config.object.name}",
        f"A LoRA adapter of {_base_name(config)}, trained by {METHODS[config.method]} with Whetstone.",
        _use(config),
        "## Figures",
        _table(("Figure", "Value"), sorted(lineage.metrics.items())),
        f"Of each step: [{METRICS_FILE}]({METRICS_FILE}).",
        *([f"![Loss by step]({CURVE_FILE})"] if (folder / CURVE_FILE).is_file() else []),
        "## Data",
        _data(config, lineage),
        "## Recipe",
        _table(("Setting", "Value"), _flat(_settings(lineage.recipe))),
        "## Origin",
        _table(("What", "Which"), _origin(lineage, digest)),
    ]
    ModelCard("\n\n".join(parts) + "\n", ignore_metadata_errors=False).save(folder / CARD_FILE)


def _head(config: TrainingConfig, lineage: Lineage) -> str:
    """Return the metadata: what the Hub filters by. It refuses a base or a data set that it does not know by name."""
    from huggingface_hub import EvalResult, ModelCardData

    measured = [
        EvalResult(
            task_type="text-generation",
            dataset_type="held-out",
            dataset_name="rows held out of the training",
            metric_type="loss",
            metric_name=name,
            metric_value=float(value),
        )
        for name, value in sorted(lineage.metrics.items())
        if name == "evalLoss"
    ]
    model_index: dict[str, Any] = {"model_name": config.object.name, "eval_results": measured} if measured else {}
    return ModelCardData(
        base_model=config.base_model_hub_id,
        library_name="peft",
        pipeline_tag="text-generation",
        tags=["lora", config.method.lower(), config.backend.lower(), "whetstone"],
        datasets=sorted({name for dataset in config.datasets if (name := _hub_dataset(dataset))}) or None,
        **model_index,
    ).to_yaml()


def _base_name(config: TrainingConfig) -> str:
    hub_id = config.base_model_hub_id
    return f"[{hub_id}](https://huggingface.co/{hub_id})" if hub_id else f"`{config.base_model_source}`"


def _hub_dataset(dataset: DatasetFile) -> str | None:
    uri = dataset.uri or ""
    return split_hub_file(uri)[0] if uri.startswith(_HUB_DATASETS) else None


def _use(config: TrainingConfig) -> str:
    base = config.base_model_hub_id or "FOLDER_OF_THE_BASE_MODEL"
    return f"""```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER_OF_THIS_ADAPTER")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "FOLDER_OF_THIS_ADAPTER")
```

The tokenizer's files here hold the chat template of the training."""


def _data(config: TrainingConfig, lineage: Lineage) -> str:
    places = {dataset.name: dataset.uri or "" for dataset in config.datasets}
    rows = [(one.name, places.get(one.name, ""), str(one.rows), one.digest) for one in lineage.datasets]
    return _table(("Name", "Place", "Rows learned", "Digest of the file"), rows)


def _settings(recipe: Mapping[str, object]) -> dict[str, object]:
    """Return what of the recipe is a setting: data and base have tables of their own."""
    return {name: value for name, value in recipe.items() if name not in ("datasets", "baseFingerprint")}


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in sorted(values.items()):
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        elif value is not None:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append((prefix + name, shown))
    return found


def _origin(lineage: Lineage, digest: str) -> list[tuple[str, str]]:
    return [
        ("Content digest", digest),
        ("Recipe digest", lineage.recipe_digest),
        ("Base model", lineage.base.source),
        ("Fingerprint of the base", lineage.base.fingerprint),
        ("LoRATrainingJob", f"{lineage.namespace}/{lineage.object_name}"),
        ("Published at", lineage.published_at),
        *([("Image", lineage.image)] if lineage.image else []),
        *((f"Version of {name}", value) for name, value in sorted(lineage.versions.items())),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
