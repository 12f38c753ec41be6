"""A tiny Llama with SmolLM2's chat template and a tokenizer of single bytes, and jobs that train it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from whetstone_api.jobs import TrainingConfig
from whetstone_api.reports import TerminationReport

ROOT = Path(__file__).parents[2]
FIELD = "spec.datasets[0].source.uri (pvc://data/train.jsonl)"

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer(template: str | None = SMOLLM2_TEMPLATE) -> Any:
    """A tokenizer with one token a byte, and ChatML's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = template
    return fast


def chat_row(question: str, answer: str, **more: str) -> dict[str, Any]:
    """A row with one question and one answer."""
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    ]
    return {"messages": messages, **more}


class Job:
    """A training job in a temporary folder, run as the container runs it."""

    def __init__(self, folder: Path, model_folder: Path) -> None:
        self.folder = folder
        self.data = folder / "train.jsonl"
        self.output = folder / "adapters" / "a"
        self.workspace = folder / "workspace"
        self.write([chat_row(f"q{number}", f"a{number}" * 3, task=f"sha256:{number % 4}") for number in range(12)])
        self.values: dict[str, Any] = {
            "object": {"kind": "LoRATrainingJob", "namespace": "demo", "name": "t", "uid": "u"},
            "reportUrl": "http://127.0.0.1:9/v1/reports",
            "baseModelPath": str(model_folder),
            "baseModelSource": "pvc://models/tiny",
            "datasets": [{"name": "train", "path": str(self.data), "field": FIELD}],
            "lora": {"rank": 4, "alpha": 8, "dropout": "0.1"},
            "hyperparameters": {"epochs": 3, "batchSize": 4, "learningRate": "1e-2"},
            "plan": {"microBatchSize": 2},
            "checkpoint": {"everySteps": 2, "keep": 2},
            "workspacePath": str(self.workspace),
            "outputPath": str(self.output),
            "outputUri": "pvc://adapters/a",
        }

    def write(self, rows: list[Any]) -> None:
        """Make the dataset's file."""
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    @property
    def config(self) -> TrainingConfig:
        """The configuration as the program reads it."""
        return TrainingConfig.model_validate(self.values)

    def start(
        self, stage: str, *, termination: str = "termination", largest_file: int | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a stage as a process of its own.

        Args:
            stage: `prepare`, `train` or `merge`.
            termination: Name of the file for its last words.
            largest_file: Bytes beyond which the kernel refuses to let a file grow, as a full disk does.
            environment: Further variables.
        """
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.values))
        command = [sys.executable, "-m", "whetstone_trainer", stage, "--config", str(path), "--metrics-port", "0"]
        command += ["--termination-path", str(self.folder / termination), "--token-path", str(self.folder / "token")]
        paths = os.pathsep.join(str(ROOT / part) for part in ("operator", "trainer"))
        variables = {**os.environ, "PYTHONPATH": paths, **environment}
        if largest_file is not None:
            command = ["prlimit", f"--fsize={largest_file}", *command]
        return subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, stage: str, *, largest_file: int | None = None, **environment: str) -> int:
        """Run a stage to its end and return its exit code."""
        (self.folder / "termination").unlink(missing_ok=True)
        process = self.start(stage, largest_file=largest_file, **environment)
        self.log, _ = process.communicate(timeout=300)
        return process.returncode

    @property
    def report(self) -> TerminationReport:
        """What the last run left for the kubelet."""
        return TerminationReport.model_validate_json((self.folder / "termination").read_bytes())


def train_here(job: Job) -> Any:
    """Prepare a job and train it in this process, without publishing; return what is trained."""
    from whetstone_api.training_distributed import World
    from whetstone_trainer.distributed import Ranks, SilentReporter, find_place
    from whetstone_trainer.fitting import train_fitting
    from whetstone_trainer.prepare import prepare_data
    from whetstone_trainer.progress import Progress
    from whetstone_trainer.recipe import read_recipe
    from whetstone_trainer.stopping import StopSignal

    recipe = read_recipe(job.config)
    return train_fitting(
        job.config,
        recipe,
        prepared=prepare_data(job.config, recipe),
        progress=Progress(SilentReporter()),
        stop=StopSignal(),
        ranks=Ranks(find_place(World())),
    )
