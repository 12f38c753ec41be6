"""What a training on CPUs takes of main memory and of time, beside what its plan is chosen by.

Each case is the whole Train stage as its container runs it, with random weights, in a process of its own. Its memory is
the most that it held at a time and that is no file's (`RssAnon`): the kernel takes pages of files, such as those of
libraries, back before it kills. The speed of passes of several sizes gives the tokens at which half of the full speed
is reached (`CPU_HALF_SPEED_TOKENS`), and the share of it that is left with checkpointing (`CHECKPOINTED`).

    python3 bench/training_cpu.py --output build/bench/training_cpu.json    # with the trainer's libraries, as its image
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path += [str(ROOT / part) for part in ("operator", "trainer", "tests")]

from support.preferences import pair_row, prefer  # noqa: E402 - the path comes first
from support.trainer_job import Job, byte_tokenizer, chat_row  # noqa: E402
from whetstone_bench.machine import processor  # noqa: E402

MIB: Final = 1 << 20
LOOK_SECONDS: Final = 0.005
MODELS: Final[dict[str, dict[str, Any]]] = {
    "small": {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 8192,
    },
    "SmolLM2-135M": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    },
}
"""Architectures; of the second one it is that of the model of this name."""
AROUND: Final = 33
"""Tokens of a row that are not its answer's, as `byte_tokenizer` renders it."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training.

    Args:
        model: Key of `MODELS`.
        rows: Rows of a step.
        micro: Rows of a pass.
        length: Tokens of a row, or of each side of a pair.
        steps: Optimizer steps.
        plan: What else `spec.plan` fixes.
        dropout: Dropout of the adapter.
        pairs: Whether it learns from pairs.
    """

    model: str
    micro: int
    length: int
    rows: int = 0
    steps: int = 2
    plan: tuple[tuple[str, str], ...] = (("gradientCheckpointing", "Disabled"),)
    dropout: str = "0"
    pairs: bool = False

    @property
    def name(self) -> str:
        """What it is, in words."""
        fixed = dict(self.plan)
        more = ["checkpointing"] if fixed["gradientCheckpointing"] == "Enabled" else []
        more += [fixed["attention"]] if "attention" in fixed else []
        more += ["dropout"] if self.dropout != "0" else []
        more += ["DPO"] if self.pairs else []
        return ", ".join([f"{self.micro} x {self.length}", *more])


AGAIN: Final = (("gradientCheckpointing", "Enabled"),)
EAGER: Final = (("gradientCheckpointing", "Disabled"), ("attention", "Eager"))
SMALL: Final = (
    Case(model="small", micro=8, length=256),
    Case(model="small", micro=8, length=256, plan=AGAIN),
)
"""What the tests measure."""
MEMORY: Final = (
    *SMALL,
    Case(model="SmolLM2-135M", micro=1, length=128),
    Case(model="SmolLM2-135M", micro=4, length=128),
    Case(model="SmolLM2-135M", micro=1, length=512),
    Case(model="SmolLM2-135M", micro=1, length=512, dropout="0.1"),
    Case(model="SmolLM2-135M", micro=1, length=512, plan=EAGER),
    Case(model="SmolLM2-135M", micro=4, length=512),
    Case(model="SmolLM2-135M", micro=4, length=512, plan=AGAIN),
    Case(model="SmolLM2-135M", micro=1, length=256, pairs=True),
)
SPEED: Final = tuple(
    Case(model="SmolLM2-135M", rows=8, micro=micro, length=48, steps=5, plan=plan)
    for micro in (1, 2, 4, 8)
    for plan in ((("gradientCheckpointing", "Disabled"),), AGAIN)
)
SETS: Final = {"small": SMALL, "memory": MEMORY, "speed": SPEED}


def make_model(folder: Path, values: dict[str, Any]) -> None:
    """Write a model of an architecture with random weights, in bfloat16 as most are published."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**values, max_position_embeddings=2048, tie_word_embeddings=True)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def make_job(folder: Path, model: Path, case: Case) -> Job:
    """Return the job of a case, with rows that are all of one length."""
    folder.mkdir()
    job = Job(folder, model)
    if case.pairs:
        prefer(job)
    rows = case.rows or case.micro
    answers = [f"{number:06}" + "x" * (case.length - AROUND - 6) for number in range(rows * case.steps)]
    job.write([pair_row("q", one, one[::-1]) if case.pairs else chat_row("q", one) for one in answers])
    job.values |= {
        "lora": {"rank": 16, "alpha": 32, "dropout": case.dropout},
        "hyperparameters": {"maxSteps": case.steps, "batchSize": rows},
        "checkpoint": {"everySteps": 1_000_000, "keep": 1},
        "plan": {"microBatchSize": case.micro, **dict(case.plan)},
    }
    (folder / "config.json").write_text(json.dumps(job.values))
    return job


def beside(act: Callable[[], int | None]) -> tuple[int, int]:
    """Run something in a process that has all libraries already; return its exit code and the most memory it held."""
    sys.stdout.flush()
    child, peak = os.fork(), 0
    if child == 0:
        code = 1
        try:
            code = act() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), peak
        peak = max(peak, anonymous_bytes(child))
        time.sleep(LOOK_SECONDS)


def anonymous_bytes(pid: int) -> int:
    """Return the bytes of main memory that a process holds and that are no file's; 0 where it has just ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def train(job: Job) -> int:
    """Run the Train stage of a job and return its exit code; what it says goes to a file beside it."""
    from whetstone_trainer.__main__ import main as program

    said = os.open(job.folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    options = {
        "--config": job.folder / "config.json",
        "--metrics-port": 0,
        "--termination-path": job.folder / "termination",
        "--token-path": job.folder / "token",
    }
    return program(["train", *(str(word) for option in options.items() for word in option)])


def measure(case: Case, place: Path) -> dict[str, Any]:
    """Run a case and return its figures.

    Raises:
        SystemExit: It failed.
    """
    model = place / case.model
    if not model.is_dir():
        beside(lambda: make_model(model, MODELS[case.model]))
    job = make_job(place / str(len(list(place.iterdir()))), model, case)
    code, peak = beside(lambda: train(job))
    if code:
        raise SystemExit(f"{case.model}, {case.name}: exit code {code}\n{(job.folder / 'log').read_text()[-4000:]}")
    record = json.loads((job.output / "training_metrics.json").read_bytes())
    report = json.loads((job.workspace / "prepared" / "report.json").read_bytes())["dataset"]
    if report["longest"] != case.length:
        raise SystemExit(f"rows have {report['longest']} tokens, not {case.length}")
    tokens = report["tokens"] // case.steps
    return {
        "model": case.model,
        "what": case.name,
        "estimated": estimated(job),
        "peakBytes": peak,
        # The least disturbed step: the first one also makes what the others find.
        "stepSeconds": min(tokens / step["tokensPerSecond"] for step in record["steps"][1:]),
        "passes": (case.rows or case.micro) // case.micro,
        "tokens": tokens,
        "checkpointing": dict(case.plan)["gradientCheckpointing"] == "Enabled",
    }


def estimated(job: Job) -> dict[str, int]:
    """Return the parts of what the trainer expects the job to take."""
    from whetstone_artifacts.model_facts import read_model_facts
    from whetstone_trainer.memory_estimate import choices_for, freedom_for
    from whetstone_trainer.prepared import read_report
    from whetstone_trainer.recipe import effective_settings

    config, dataset = job.config, read_report(job.workspace).dataset
    facts = read_model_facts(Path(config.base_model_path))
    settings = effective_settings(config, None if facts is None else facts.max_length)
    if facts is None:
        raise SystemExit("the model says too little")
    [choice] = choices_for(config, dataset, facts, freedom_for(config, settings, dataset), is_gpu=False)
    if choice.memory is None:
        raise SystemExit("there is no estimate")
    return choice.memory.parts()


def half_speed(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return what the seconds of steps say: those of a pass, of a token, and at how many tokens both are equal.

    Least squares of `seconds = passes x of a pass + tokens x of a token`, weighted so that each case counts alike.
    """
    plain = [one for one in found if not one["checkpointing"]]
    rows = [(one["passes"] / one["stepSeconds"], one["tokens"] / one["stepSeconds"]) for one in plain]
    pp, pt, tt = (sum(a[i] * a[j] for a in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    p, t = (sum(a[i] for a in rows) for i in (0, 1))
    determinant = pp * tt - pt * pt
    a_pass, a_token = (p * tt - t * pt) / determinant, (t * pp - p * pt) / determinant
    again = {(one["passes"], one["tokens"]): one["stepSeconds"] for one in found if one["checkpointing"]}
    return {
        "secondsOfAPass": a_pass,
        "secondsOfAToken": a_token,
        "halfSpeedTokens": a_pass / a_token,
        "checkpointed": statistics.median(one["stepSeconds"] / again[one["passes"], one["tokens"]] for one in plain),
    }


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print the figures as tables of a page."""
    heading = ("Model", "Rows x tokens of a pass", "Estimated", "Measured", "Error", "A step")
    print(f"| {' | '.join(heading)} |\n|{' --- |' * len(heading)}")
    for one in found:
        total = sum(one["estimated"].values())
        cells = (
            one["model"],
            one["what"] + (f", {one['passes']} passes" if one["passes"] > 1 else ""),
            f"{total // MIB:,} MiB",
            f"{one['peakBytes'] // MIB:,} MiB",
            f"{total / one['peakBytes'] - 1:+.0%}",
            f"{one['stepSeconds']:.2f} s",
        )
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure the sets of cases that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "training_cpu.json")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=["memory", "speed"])
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
    # All that a training imports; what threads there are then belong to a library that minds forks.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)
    from whetstone_trainer import fitting, probe, stacking  # noqa: F401

    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="whetstone-cpu-") as place:
        found = {name: [measure(case, Path(place)) for case in SETS[name]] for name in options.sets}
    machine = {"processor": processor(), "cpus": len(os.sched_getaffinity(0)), "load": load}
    result: dict[str, Any] = {"machine": machine, **found}
    for cases in found.values():
        show(cases)
    if "speed" in found:
        result["fit"] = half_speed(found["speed"])
        print(json.dumps(result["fit"]))
    print(json.dumps(machine))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
