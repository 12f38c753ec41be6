"""Measure Prepare on a long set: rows a second and peak memory, beside `datasets.map` that only renders and tokenizes.

    python3 bench/data_preparation.py --megabytes 2048 --output build/bench/data.json

Runs in an environment with the trainer's libraries (its image has them), without network. It makes a tokenizer and a
file of conversations with tool-like turns. Each way runs in a process of its own, with as many of its own beside it as
there are CPUs (`--processes`), and its memory is that of all of them: resident pages, those that several share counted
once (`Pss` of Linux).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from whetstone_bench.machine import processor

ROOT = Path(__file__).parents[1]
TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = 4000
PHRASE = 10
TURNS = 6
CONTEXT = 32768
SAMPLE_SECONDS = 5.0


def words() -> list[str]:
    """Return the words of the texts, the same each time."""
    chance = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz0123456789/-_."
    return ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(WORDS)]


def make_model(folder: Path) -> None:
    """Make a folder that Prepare takes for a model: a tokenizer with 8,192 pieces and a configuration."""
    import numpy as np
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8192, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    known = words()
    tokenizer.train_from_iterator((" ".join(known[start:]) for start in range(0, WORDS, 100)), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    LlamaConfig(vocab_size=8192, max_position_embeddings=CONTEXT).save_pretrained(folder)
    save_file({"unused": np.zeros(1, dtype=np.float32)}, folder / "model.safetensors")


def make_rows(path: Path, megabytes: int) -> int:
    """Write conversations until the file has its size, and return how many there are."""
    chance, known, rows, size = random.Random(1), words(), 0, 0
    phrases = [" ".join(chance.choices(known, k=PHRASE)) for _ in range(WORDS)]
    with path.open("w") as stream:
        while size < megabytes << 20:
            messages = []
            for turn in range(TURNS):
                length = chance.randint(20, 250) // PHRASE
                role = "user" if turn % 2 == 0 else "assistant"
                messages.append({"role": role, "content": " ".join(chance.choices(phrases, k=length))})
            size += stream.write(json.dumps({"messages": messages, "task": f"t{rows // 4}"}) + "\n")
            rows += 1
    return rows


def configuration(folder: Path) -> dict[str, Any]:
    """Return the configuration of a job on the made files."""
    return {
        "object": {"kind": "LoRATrainingJob", "namespace": "n", "name": "t", "uid": "u"},
        "reportUrl": "http://127.0.0.1:9/v1/reports",
        "baseModelPath": str(folder / "model"),
        "baseModelSource": "pvc://models/made",
        "datasets": [{"name": "rows", "path": str(folder / "rows.jsonl"), "field": "rows"}],
        "lora": {},
        "hyperparameters": {},
        "checkpoint": {},
        "workspacePath": str(folder / "workspace"),
        "outputPath": str(folder / "adapter"),
        "outputUri": "pvc://adapters/a",
    }


def prepare(folder: Path, processes: int) -> None:
    """Prepare as the product does."""
    from whetstone_api.jobs import TrainingConfig
    from whetstone_trainer import without_torch  # noqa: F401 - as its Prepare
    from whetstone_trainer.prepare import prepare_data
    from whetstone_trainer.recipe import read_recipe

    config = TrainingConfig.model_validate(configuration(folder))
    prepare_data(config, read_recipe(config), processes=processes)


def map_alone(folder: Path, processes: int) -> None:
    """Render and tokenize with `datasets.map`, without masks, counts, checks or removal of duplicates."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
        return {"input_ids": tokenizer(text, add_special_tokens=False)["input_ids"]}

    rows = load_dataset("json", data_files=str(folder / "rows.jsonl"), split="train", cache_dir=str(folder / "cache"))
    rows.map(tokenize, remove_columns=rows.column_names, num_proc=processes if processes > 1 else None)


WAYS = {"prepare": prepare, "map": map_alone}


def measure(way: str, folder: Path, *, rows: int, processes: int) -> dict[str, Any]:
    """Run a way in a process of its own and return its figures, with words on its progress to stderr."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / part) for part in ("operator", "trainer"))
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder), "--processes", str(processes)]
    started, peak = time.monotonic(), 0
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, tree_bytes(process.pid))
            figures = f"{time.monotonic() - started:.0f} s, peak {peak >> 20} MiB, {_written(folder) >> 20} MiB written"
            _say(f"{way}: {figures}")
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_SECONDS)
        seconds = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"{way} ended with exit code {process.returncode}")
    return {"rowsPerSecond": round(rows / seconds, 1), "seconds": round(seconds, 1), "peakMiB": peak >> 20}


def tree_bytes(pid: int) -> int:
    """Return the memory of a process and all below it in bytes; a page that several share counts once in all."""
    total = 0
    with suppress(OSError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total = next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(map(tree_bytes, map(int, (task / "children").read_text().split())))
    return total


def _written(folder: Path) -> int:
    """Return the bytes of what a way has written so far."""
    places = [folder / "workspace", folder / "cache"]
    return sum(path.stat().st_size for place in places for path in place.rglob("*.arrow") if path.is_file())


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "data.json")
    parser.add_argument("--without-map", action="store_true", help="measure Prepare only")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="default: one a CPU")
    parser.add_argument("--way", choices=sorted(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        WAYS[options.way](options.folder, options.processes)
        return
    with tempfile.TemporaryDirectory(prefix="whetstone-data-") as name:
        folder = Path(name)
        (folder / "model").mkdir()
        make_model(folder / "model")
        rows = make_rows(folder / "rows.jsonl", options.megabytes)
        _say(f"{rows} rows, {options.megabytes} MB; {options.processes} processes")
        ways = ["prepare"] if options.without_map else ["prepare", "map"]
        figures = {way: measure(way, folder, rows=rows, processes=options.processes) for way in ways}
    machine = {"cpus": options.processes, "processor": processor(), "load": round(os.getloadavg()[0], 1)}
    result = {"megabytes": options.megabytes, "rows": rows, "turns": TURNS, "machine": machine, **figures}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
