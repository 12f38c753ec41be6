"""Our Train phase against a bare TRL script with the same settings on a CPU, in pairs; runs inside the trainer's image.

Both train the same small Llama with random weights on the same prepared rows: the same micro-batch, optimizer, seed and
order. Each round measures both and, the other way round, what checkpoints cost. Prints one line of JSON.

    make bench ARGS=training
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.trainer_job import Job, byte_tokenizer, chat_row
from whetstone_api.training_distributed import World
from whetstone_artifacts.reporting import Reporter

ROWS, BATCH, MICRO = 96, 8, 4
STEPS = ROWS // BATCH
NEVER, OFTEN = 1_000_000, 2


def make_model(folder: Path) -> None:
    """Write the model: six layers of width 256."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def make_job(folder: Path, model: Path, *, every: int) -> Job:
    """Return a job with checkpoints after so many steps."""
    source = random.Random(0)
    job = Job(folder, model)
    words = ["copy", "move", "list", "count", "sort", "append", "delete", "create"]
    job.write(
        [chat_row(" ".join(source.choices(words, k=8)), " ".join(source.choices(words, k=9))) for _ in range(ROWS)]
    )
    job.values["lora"] = {"rank": 16, "alpha": 32, "dropout": "0"}
    job.values["hyperparameters"] = {"epochs": 1, "batchSize": BATCH, "learningRate": "1e-3"}
    job.values["plan"] = {"microBatchSize": MICRO}
    job.values["checkpoint"] = {"everySteps": every, "keep": 2}
    return job


def ours(job: Job) -> tuple[float, list[float]]:
    """Train by our Train phase; return its seconds and the loss of each step."""
    from whetstone_trainer.distributed import Ranks, find_place
    from whetstone_trainer.fitting import train_fitting
    from whetstone_trainer.prepare import prepare_data
    from whetstone_trainer.progress import Progress
    from whetstone_trainer.recipe import read_recipe
    from whetstone_trainer.stopping import StopSignal

    recipe = read_recipe(job.config)
    prepared = prepare_data(job.config, recipe)
    reporter = Reporter(url=job.config.report_url, token_path=job.folder / "absent")
    try:
        trained = train_fitting(
            job.config,
            recipe,
            prepared=prepared,
            progress=Progress(reporter),
            stop=StopSignal(),
            ranks=Ranks(find_place(World())),
        )
    finally:
        reporter.close()
    state = job.workspace / "checkpoints" / f"checkpoint-{STEPS}" / "trainer_state.json"
    history = json.loads(state.read_bytes())["log_history"]
    return float(trained.metrics["trainSeconds"]), [entry["loss"] for entry in history if "loss" in entry]


def bare(job: Job, output: Path) -> tuple[float, list[float]]:
    """Train by TRL alone on the rows that a job has prepared, and save once at the end, as ours does."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed
    from trl import SFTConfig, SFTTrainer

    class Clock(TrainerCallback):
        started = 0.0

        def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
            self.started = time.monotonic()

    clock, place = Clock(), job.config.base_model_path
    set_seed(0)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32),
        args=SFTConfig(
            output_dir=str(output),
            per_device_train_batch_size=MICRO,
            gradient_accumulation_steps=BATCH // MICRO,
            num_train_epochs=1,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=0.1,
            seed=0,
            data_seed=0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_length=None,
            logging_steps=1,
            save_strategy="steps",
            save_steps=NEVER,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            report_to="none",
        ),
        train_dataset=Dataset.from_file(str(job.workspace / "prepared" / "rows.arrow")),
        processing_class=AutoTokenizer.from_pretrained(place),
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear"
        ),
        callbacks=[clock],
    )
    trainer.train()
    seconds = time.monotonic() - clock.started
    return seconds, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main() -> None:
    """Measure so many rounds after one that warms up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        make_model(root / "model")
        for number in range(rounds + 1):
            jobs = {}
            for name, every in (("seldom", NEVER), ("often", OFTEN)):
                (root / f"{name}-{number}").mkdir()
                jobs[name] = make_job(root / f"{name}-{number}", root / "model", every=every)
            ours_first = number % 2 == 0
            if ours_first:
                mine, my_losses = ours(jobs["seldom"])
            else:
                # The rows are prepared by the first of our trainings.
                often, _ = ours(jobs["often"])
            theirs, their_losses = bare(jobs["seldom" if ours_first else "often"], root / "bare")
            if ours_first:
                often, _ = ours(jobs["often"])
            else:
                mine, my_losses = ours(jobs["seldom"])
            shutil.rmtree(root / "bare", ignore_errors=True)
            difference = max(abs(one - other) for one, other in zip(my_losses, their_losses, strict=True))
            saves = STEPS // OFTEN - 1
            found.append(
                {
                    "ours": mine,
                    "bare": theirs,
                    "checkpointSeconds": (often - mine) / saves,
                    "lossDifference": difference,
                }
            )
    sys.stdout.write(json.dumps(found[1:]) + "\n")


if __name__ == "__main__":
    main()
