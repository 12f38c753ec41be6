"""One training by one process and by two, on two GPUs: losses, speed, memory, and what a kill leaves.

Each case is the whole `train` stage as its container runs it, on random weights in a real architecture. Two pods are
two launchers that each see one of the GPUs and meet by the address that a headless Service would give. A line of JSON
a case.

    PYTHONPATH=operator:trainer:tests python bench/training_ranks.py --out build/bench/training_ranks.jsonl
"""

import argparse
import json
import os
import re
import signal
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from support.preferences import pair_row, prefer
from support.trainer_job import Job, byte_tokenizer, chat_row
from whetstone_artifacts.folders import adapter_digest

LLAMA_1B: Final[dict[str, Any]] = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 259,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
ROWS: Final = 128
BATCH: Final = 8
LETTERS: Final = 1500
"""Characters of a row's answer, which are its tokens."""
PAIR: Final = {"nodes": 1, "processesPerNode": 2}
PODS: Final = {"nodes": 2, "processesPerNode": 1}
MEETING: Final = {"WHETSTONE_RENDEZVOUS": "localhost", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
CASES: Final[dict[str, dict[str, Any]]] = {
    "one": {},
    "DDP": {"world": {**PAIR, "strategy": "DDP"}},
    "FSDP": {"world": {**PAIR, "strategy": "FSDP"}},
    "ZeRO2": {"world": {**PAIR, "strategy": "ZeRO2"}},
    "ZeRO3": {"world": {**PAIR, "strategy": "ZeRO3"}},
    "two pods, DDP": {"world": {**PODS, "strategy": "DDP"}},
    "two pods, FSDP": {"world": {**PODS, "strategy": "FSDP"}},
    "ZeRO2, rank 1 killed after step 5": {"world": {**PAIR, "strategy": "ZeRO2"}, "kill": "after-step:5"},
    "two pods, FSDP, rank 1 killed after step 5": {"world": {**PODS, "strategy": "FSDP"}, "kill": "after-step:5"},
    "two pods, ZeRO2, rank 1 told to stop": {"world": {**PODS, "strategy": "ZeRO2"}, "stop": True},
    "DPO, one": {"preferences": True},
    "DPO, DDP": {"preferences": True, "world": {**PAIR, "strategy": "DDP"}},
    "DPO, ZeRO2": {"preferences": True, "world": {**PAIR, "strategy": "ZeRO2"}},
}


class Reports:
    """The operator's endpoint for reports of trainings, which keeps the last of each figure.

    Attributes:
        latest: The last values of the report's fields.
    """

    def __init__(self) -> None:
        self.latest: dict[str, Any] = {}
        reports = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reports.latest |= {name: value for name, value in report.items() if value is not None}
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/reports"


def make_model(folder: Path, values: dict[str, Any]) -> None:
    """Write a model of an architecture with random weights and a tokenizer of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**values)).to(torch.bfloat16).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)


def make_job(folder: Path, model: Path, case: dict[str, Any], reports: Reports) -> Job:
    """Return the job of a case."""
    folder.mkdir()
    job = Job(folder, model)
    answers = ("lorem ipsum dolor " * LETTERS)[:LETTERS]
    job.write([chat_row(f"question {number}", f"{number} {answers}") for number in range(ROWS)])
    if case.get("preferences"):
        job = prefer(job)
        job.write([pair_row(f"q{number}", f"{number} {answers}", answers[: 400 + number]) for number in range(ROWS)])
    job.values |= {
        "reportUrl": reports.url,
        "lora": {"rank": 16, "alpha": 32, "dropout": "0"},
        "hyperparameters": {"maxSteps": 100000 if case.get("stop") else 14, "batchSize": BATCH},
        "checkpoint": {"everySteps": 4, "keep": 2},
        "plan": {"microBatchSize": 2 if case.get("preferences") else 4, "compile": "Disabled"},
        "onAccelerator": True,
        "world": case.get("world", {"nodes": 1, "processesPerNode": 1}),
    }
    (folder / "token").write_text("token")
    return job


def run(job: Job, variables: dict[str, str], *, stop: bool) -> list[tuple[int, str]]:
    """Run the stage in all pods of the job and return their exit codes and logs.

    Args:
        job: The job.
        variables: Further environment variables of every process.
        stop: Whether to send SIGTERM to the last pod once there is a loss.
    """
    if job.values["world"]["nodes"] == 1:
        devices = "0,1" if job.values["world"]["processesPerNode"] == 2 else "0"
        pods = [job.start("train", CUDA_VISIBLE_DEVICES=devices, **variables)]
    else:
        pods = [
            job.start(
                "train",
                termination=f"termination-{index}" if index else "termination",
                JOB_COMPLETION_INDEX=str(index),
                CUDA_VISIBLE_DEVICES=str(index),
                **MEETING,
                **variables,
            )
            for index in range(2)
        ]
    logs = [""] * len(pods)

    def read(index: int) -> None:
        output = pods[index].stdout
        assert output is not None
        for line in output:
            logs[index] += line

    readers = [threading.Thread(target=read, args=(index,)) for index in range(len(pods))]
    for reader in readers:
        reader.start()
    while stop and "'loss'" not in logs[0] and pods[0].poll() is None:
        time.sleep(0.2)
    if stop:
        pods[-1].send_signal(signal.SIGTERM)
    ends = [pod.wait(timeout=240) for pod in pods]
    for reader in readers:
        reader.join()
    return list(zip(ends, logs, strict=True))


def measure(name: str, case: dict[str, Any], place: Path, model: Path) -> dict[str, Any]:
    """Run a case and return its figures."""
    reports = Reports()
    job = make_job(place / re.sub(r"\W+", "-", name), model, case, reports)
    started = time.monotonic()
    found: dict[str, Any] = {"case": name}
    variables = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    if case.get("kill"):
        variables |= {"WHETSTONE_FAILPOINT": case["kill"], "WHETSTONE_FAILPOINT_RANK": "1"}
        killed = run(job, variables, stop=False)
        found["exitsWhenKilled"] = [end for end, _ in killed]
        found["published"] = job.output.exists()
    pods = run(job, variables, stop=bool(case.get("stop")))
    log = "".join(text for _, text in pods)
    found |= {
        "exits": [end for end, _ in pods],
        "seconds": round(time.monotonic() - started, 1),
        "losses": [float(loss) for loss in re.findall(r"'loss': '?([0-9.e+-]+)", pods[0][1])],
        "tokensPerSecond": reports.latest.get("tokensPerSecond"),
        "peakBytes": reports.latest.get("peakMemoryBytes"),
        "shares": re.findall(r"holds (\d+) of the base's (\d+) parameters", log),
        "resumed": re.findall(r"(?i)resum\w+[^\n]*", log)[:2],
        "digest": adapter_digest(job.output) if job.output.exists() else None,
        "message": job.report.message if (job.folder / "termination").exists() else None,
    }
    if any(found["exits"]) and not case.get("stop"):
        found["log"] = log[-20000:]
    return found


def main() -> None:
    """Measure the cases within the seconds given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600, help="start nothing after so many seconds")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        make_model(model, LLAMA_1B)
        for name in options.cases:
            if time.monotonic() - begun > options.seconds:
                break
            found = measure(name, CASES[name], Path(folder), model)
            print(json.dumps({key: value for key, value in found.items() if key != "log"}), flush=True)
            if "log" in found:
                print(found["log"][-2500:], flush=True)
            with options.out.open("a") as out:
                out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
