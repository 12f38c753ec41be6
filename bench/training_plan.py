"""Our Train phase with its automatic plan against TRL's defaults, in pairs, on the device at hand.

The model has a real architecture and random weights: speed and memory do not depend on their values. Both sides train
on the same prepared rows with the same optimizer steps; a line of JSON for each pair, with the losses of all steps,
peak memory, and the estimate beside it. Tokens a second are those after the warm-up.

    python bench/training_plan.py --out build/bench/training_plan.jsonl            # needs torch, trl, peft, datasets
"""

import argparse
import gc
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

GIB = 1 << 30
LLAMA_3B: dict[str, Any] = {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
SHAPES = (
    # Rows of a step, tokens of a row, rank, steps, and TRL's micro-batch for them.
    {"rows": 32, "tokens": 210, "rank": 32, "steps": 24, "theirs": 8},
    {"rows": 8, "tokens": 2048, "rank": 16, "steps": 16, "theirs": 4},
    {"rows": 1, "tokens": 8192, "rank": 64, "steps": 20, "theirs": 1},
    # Rows of unequal length: from an eighth of it to all of it.
    {"rows": 8, "tokens": 2048, "rank": 16, "steps": 24, "theirs": 4, "mixed": True},
    # Model, rank and batch of PEFT's comparison of methods, on all linear layers, and as there on two of them.
    {"rows": 4, "tokens": 768, "rank": 32, "steps": 40, "theirs": 4},
    {"rows": 4, "tokens": 768, "rank": 32, "steps": 40, "theirs": 4, "mixed": True},
    {"rows": 4, "tokens": 768, "rank": 32, "steps": 40, "theirs": 4, "mixed": True, "targets": ["q_proj", "v_proj"]},
)
WARM_UP = 6


def make_model(folder: Path, values: dict[str, Any]) -> None:
    """Write a model of an architecture with random weights, once."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if (folder / "config.json").is_file():
        return
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(**values)).to(torch.bfloat16)
    model.save_pretrained(folder)
    del model
    release()


def release() -> None:
    """Give the device's memory back and count its peak anew."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class Clock:
    """Times of the ends of steps, as a callback of transformers."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.losses: list[float] = []

    def callback(self) -> Any:
        """Return the callback."""
        import torch
        from transformers import TrainerCallback

        clock = self

        class Watch(TrainerCallback):
            def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                clock.ends.append(time.monotonic())

            def on_log(self, *_args: Any, logs: dict[str, Any] | None = None, **_kwargs: Any) -> None:
                if logs and "loss" in logs:
                    clock.losses.append(float(logs["loss"]))

        return Watch()

    def figures(self, tokens: float, started: float, *, mixed: bool = False) -> dict[str, Any]:
        """Return speed after the warm-up, seconds until its end, losses and peak memory."""
        import torch

        seconds = [one - other for one, other in zip(self.ends[WARM_UP:], self.ends[WARM_UP - 1 :], strict=False)]
        # Steps of unequal rows differ: the mean holds all of them.
        typical = statistics.fmean(seconds) if mixed else statistics.median(seconds)
        peak = torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0
        return {
            "tokensPerSecond": round(tokens / typical, 1),
            "warmUpSeconds": round(self.ends[WARM_UP - 1] - started, 1),
            "peakGiB": round(peak, 2),
            "losses": [round(loss, 4) for loss in self.losses],
        }


def rows_of(shape: dict[str, Any], vocabulary: int) -> list[dict[str, list[int]]]:
    """Return random rows; the first third carries no loss."""
    source = random.Random(0)
    size, count = shape["tokens"], shape["rows"] * shape["steps"]
    rows = []
    for _ in range(count):
        length = source.randint(size // 8, size) if shape.get("mixed") else size
        ids = [source.randrange(1000, vocabulary) for _ in range(length)]
        rows.append({"input_ids": ids, "labels": [-100] * (length // 3) + ids[length // 3 :]})
    return rows


def bare(shape: dict[str, Any], folder: Path, rows: Any) -> dict[str, Any]:
    """Train by TRL as its documentation shows: checkpointing on, several passes a step."""
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    release()
    started, clock = time.monotonic(), Clock()
    on_gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if on_gpu else torch.float32)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(folder.parent / "bare"),
            per_device_train_batch_size=shape["theirs"],
            gradient_accumulation_steps=shape["rows"] // shape["theirs"],
            max_length=None,
            num_train_epochs=1,
            learning_rate=2e-4,
            lr_scheduler_type="cosine",
            warmup_steps=0.1,
            seed=0,
            data_seed=0,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=rows,
        processing_class=_tokenizer(),
        peft_config=LoraConfig(
            task_type="CAUSAL_LM",
            r=shape["rank"],
            lora_alpha=32,
            lora_dropout=0.0,
            target_modules=shape.get("targets", "all-linear"),
        ),
        callbacks=[clock.callback()],
    )
    trainer.train()
    return clock.figures(_tokens(rows) / shape["steps"], started, mixed=bool(shape.get("mixed")))


def _tokens(rows: Any) -> int:
    return sum(len(row) for row in rows["input_ids"])


def ours(shape: dict[str, Any], folder: Path, rows: Any, plan: dict[str, Any]) -> dict[str, Any]:
    """Train by our Train phase on the same rows."""
    from whetstone_api.jobs import TrainingConfig
    from whetstone_api.training_data import DatasetReport
    from whetstone_trainer import train as phase
    from whetstone_trainer.arguments import common_arguments
    from whetstone_trainer.base_model import load_model, lora_config
    from whetstone_trainer.compile_trial import CompileTrial
    from whetstone_trainer.device import compile_layers, find_device, lean
    from whetstone_trainer.distributed import Place, Ranks
    from whetstone_trainer.plan import make_plan
    from whetstone_trainer.recipe import effective_settings

    release()
    work = folder.parent / "ours"
    config = TrainingConfig.model_validate(
        {
            "object": {"kind": "LoRATrainingJob", "namespace": "bench", "name": "bench", "uid": "bench"},
            "reportUrl": "http://127.0.0.1:9",
            "baseModelPath": str(folder),
            "baseModelSource": "pvc://bench/model",
            "datasets": [],
            "lora": {"rank": shape["rank"], "alpha": 32, "targetModules": shape.get("targets")},
            "hyperparameters": {"batchSize": shape["rows"], "epochs": 1},
            "checkpoint": {"everySteps": 1000000},
            "plan": plan,
            "onAccelerator": True,
            "workspacePath": str(work),
            "outputPath": str(work / "adapter"),
            "outputUri": "pvc://bench/adapter",
        }
    )
    settings = effective_settings(config, LLAMA_3B["max_position_embeddings"])
    dataset = DatasetReport(rows=len(rows), tokens=_tokens(rows), loss_tokens=len(rows), longest=shape["tokens"])
    started, clock = time.monotonic(), Clock()
    chosen = make_plan(config, settings, dataset, find_device())
    work.mkdir(parents=True, exist_ok=True)
    trial = CompileTrial(chosen, work, recipe_digest=json.dumps(shape), ranks=Ranks(Place()))
    phase.set_seed(settings.seed)
    model = load_model(config, chosen)
    trainer = phase.trainer_of(config)(
        model=model,
        arguments=common_arguments(config, settings, chosen, output=work),
        train_dataset=rows,
        processing_class=_tokenizer(),
        peft_config=lora_config(config, settings, model),
        callbacks=[clock.callback(), trial],
    )
    if chosen.compiled:
        compile_layers(trainer.model, work)
    with lean(trainer.model, chosen):
        trainer.train()
    found = clock.figures(_tokens(rows) / shape["steps"], started, mixed=bool(shape.get("mixed")))
    memory = chosen.choice.memory
    return {
        **found,
        "estimatedGiB": round(memory.total / GIB, 2) if memory else None,
        "plan": trial.plan.chosen().to_wire(),
    }


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(vocab={"a": 0, "<pad>": 1}, unk_token="a"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="a")


def main() -> None:
    """Measure all shapes within the seconds given, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600, help="start nothing after so many seconds")
    parser.add_argument("--shapes", type=int, nargs="*", default=range(len(SHAPES)), help="their numbers, from 0")
    parser.add_argument("--sides", nargs="*", default=("auto", "trl", "compiled"))
    parser.add_argument("--tiny", action="store_true", help="a tiny model and short rows, to try the script")
    options = parser.parse_args()
    import datasets
    import pyarrow
    import torch

    values = LLAMA_3B
    shapes: list[dict[str, Any]] = [dict(shape) for shape in (SHAPES[number] for number in options.shapes)]
    if options.tiny:
        small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 2000}
        values = {**LLAMA_3B, **small, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
        shapes = [{**shape, "tokens": min(64, shape["tokens"]), "steps": WARM_UP + 2} for shape in shapes]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        make_model(folder, values)
        for number, shape in enumerate(shapes):
            # With a fingerprint of its own: datasets cannot pickle the tables of every pyarrow to make one.
            table = pyarrow.Table.from_pylist(rows_of(shape, values["vocab_size"]))
            rows = datasets.Dataset(table, fingerprint=str(number))
            sides: list[tuple[str, Any]] = [
                ("auto", lambda shape=shape, rows=rows: ours(shape, folder, rows, {})),
                ("trl", lambda shape=shape, rows=rows: bare(shape, folder, rows)),
                ("compiled", lambda shape=shape, rows=rows: ours(shape, folder, rows, {"compile": "Enabled"})),
            ]
            line: dict[str, Any] = {"shape": shape, "device": device, "torch": torch.__version__}
            for name, side in sides:
                if name not in options.sides:
                    continue
                if time.monotonic() - begun > options.seconds or (name == "compiled" and device == "CPU"):
                    line[name] = None
                    continue
                try:
                    line[name] = side()
                except Exception as error:
                    line[name] = {"failed": f"{type(error).__name__}: {error}"[:600]}
                print(name, json.dumps(line[name])[:500], flush=True)
            with options.out.open("a") as out:
                out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
