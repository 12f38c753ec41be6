"""Predicted against published: peak memory of trainings that others measured, beside the estimate.

The settings are as far as their sources tell; what they leave open is in `assumed`. Other programs than our trainer may
hold more: each row says what was assumed of it.

    PYTHONPATH=operator python bench/training_memory.py            # a table
    PYTHONPATH=operator python bench/training_memory.py --markdown # the same for docs/training-memory.md
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone_api.training_plan import BaseQuantization
from whetstone_artifacts.model_facts import facts_of_config
from whetstone_artifacts.serving_memory import quantity
from whetstone_artifacts.training_memory import TrainingShape, estimate_training
from whetstone_cli.estimate import estimate_object
from whetstone_cli.manifests import read_objects

EXAMPLES = Path(__file__).parents[1] / "examples" / "recipes"
GB, GIB = 10**9, 1 << 30
_LLAMA = {"model_type": "llama", "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}
MODELS: dict[str, dict[str, Any]] = {
    "Llama-2-7B": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "Llama-3.2-3B": {
        **_LLAMA,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "Llama-3.1-8B": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "Llama-3.1-70B": {
        **_LLAMA,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "Devstral-Small-24B": {
        **_LLAMA,
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
    },
    "Granite-3.3-8B": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 12800,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 49159,
        "tie_word_embeddings": True,
    },
}
RECIPES = {
    "openthoughts.yaml": "Devstral-Small-24B",
    "qlora-70b.yaml": "Llama-3.1-70B",
    "tool-use-preferences.yaml": "Granite-3.3-8B",
}
"""Base models of the manifests in `examples/recipes`."""
QV = ("q_proj", "v_proj")
NF4 = BaseQuantization.NF4


@dataclass(frozen=True, kw_only=True)
class Row:
    """A published figure.

    Args:
        source: Who published it.
        what: Setting in words.
        model: Key of `MODELS`.
        shape: The same as the estimator takes it.
        reported: Peak memory, in `unit`.
        unit: `GB` or `GiB`, as the source writes.
        assumed: What the source leaves open.
    """

    source: str
    what: str
    model: str
    shape: TrainingShape
    reported: float
    unit: str
    assumed: str = ""

    def predicted(self) -> float:
        """Return the estimate in the source's unit."""
        facts = facts_of_config(MODELS[self.model])
        if facts is None:
            raise RuntimeError("the configuration says too little")
        return estimate_training(facts, self.shape).total / (GIB if self.unit == "GiB" else GB)


def shape(batch: int, length: int, **more: Any) -> TrainingShape:
    """Return a shape, with checkpointing unless it is said otherwise."""
    return TrainingShape(micro_batch=batch, length=length, **{"rank": 8, "checkpointing": True, **more})


def _ladder() -> list[Row]:
    """LLaMA-Factory's context ladder: NF4, one row, FlashAttention-2, logits held."""
    reported = {1024: 6, 4096: 9, 8192: 12, 16384: 19, 32768: 32}
    return [
        Row(
            source="LLaMA-Factory wiki",
            what=f"NF4, 1 x {length}",
            model="Llama-2-7B",
            shape=shape(1, length, quantization=NF4, fused_loss=False),
            reported=size,
            unit="GB",
        )
        for length, size in reported.items()
    ]


ROWS: tuple[Row, ...] = (
    *_ladder(),
    Row(
        source="LLaMA-Factory wiki",
        what="NF4, 4 x 1024",
        model="Llama-2-7B",
        shape=shape(4, 1024, quantization=NF4, fused_loss=False),
        reported=9,
        unit="GB",
    ),
    Row(
        source="LLaMA-Factory wiki",
        what="bfloat16, 4 x 1024, FlashAttention-2",
        model="Llama-2-7B",
        shape=shape(4, 1024, fused_loss=False, input_casts=True),
        reported=17,
        unit="GB",
    ),
    Row(
        source="torchtune README",
        what="bfloat16, 2 x 2048, compiled, RTX 4090",
        model="Llama-3.1-8B",
        shape=shape(2, 2048),
        reported=16.2,
        unit="GiB",
        assumed="checkpointing, chunked loss",
    ),
    Row(
        source="torchtune README",
        what="NF4, 2 x 2048, compiled, RTX 4090",
        model="Llama-3.1-8B",
        shape=shape(2, 2048, quantization=NF4),
        reported=7.4,
        unit="GiB",
        assumed="checkpointing, chunked loss",
    ),
    Row(
        source="torchtune README",
        what="bfloat16, length 4096, A100",
        model="Llama-3.2-3B",
        shape=shape(1, 4096),
        reported=8.5,
        unit="GiB",
        assumed="one row, checkpointing, chunked loss",
    ),
    Row(
        source="torchtune README",
        what="NF4, length 4096, A100",
        model="Llama-3.2-3B",
        shape=shape(1, 4096, quantization=NF4),
        reported=4.6,
        unit="GiB",
        assumed="one row, checkpointing, chunked loss",
    ),
    Row(
        source="PEFT method comparison",
        what="bfloat16, rank 32 on q and v, 4 x 768, L40S",
        model="Llama-3.2-3B",
        shape=shape(4, 768, rank=32, targets=QV, checkpointing=False, fused_loss=False, input_casts=True),
        reported=22.3,
        unit="GB",
        assumed="a batch of the longest rows, no checkpointing",
    ),
)


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    found = row.predicted()
    return (
        row.source,
        row.model,
        row.what,
        row.assumed,
        f"{row.reported:g} {row.unit}",
        f"{found:.1f} {row.unit}",
        f"{found / row.reported - 1:+.0%}",
    )


def recipe_rows() -> list[tuple[str, ...]]:
    """Return what the recipes among the examples take, as `whetstone estimate` says."""
    rows: list[tuple[str, ...]] = [("Recipe", "Base model", "Estimated", "Together")]
    for name, model in RECIPES.items():
        facts = facts_of_config(MODELS[model])
        if facts is None:
            raise RuntimeError("the configuration says too little")
        documents, _ = read_objects((EXAMPLES / name).read_text())
        for document in documents:
            found = estimate_object(document, facts, longest=None, free=None)
            rows += [(f"`{one.name.split('/')[1]}`", model, one.what, quantity(one.total)) for one in found]
    return rows


HEADING = ("Source", "Model", "Setting", "Assumed", "Reported", "Estimated", "Error")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--markdown", action="store_true", help="as a table for the page")
    parser.add_argument("--recipes", action="store_true", help="instead: what the recipes among the examples take")
    options = parser.parse_args()
    markdown = options.markdown
    rows = recipe_rows() if options.recipes else [HEADING, *map(cells, ROWS)]
    if markdown:
        rows.insert(1, ("---",) * len(rows[0]))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
