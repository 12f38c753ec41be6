"""Predicted against real: what vLLM reports of its memory beside the estimate of `whetstone estimate`.

One process for each setting. The models have real architectures and random weights: memory does not depend on their
values. But for the last settings the engine captures no graphs, which starts faster.

    python bench/serving_memory.py --out build/bench/serving_memory.jsonl
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from whetstone_api.engine import EngineSpec
from whetstone_artifacts.model_facts import facts_of
from whetstone_artifacts.serving_memory import estimate
from whetstone_artifacts.tensors import TensorInfo

GIB = 1 << 30
_SHARED = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "bfloat16",
}
MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.2-3B": {
        **_SHARED,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "tie_word_embeddings": True,
        "vocab_size": 128256,
    },
    "Qwen3-8B": {
        **_SHARED,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"model": "Llama-3.2-3B"},
    {"model": "Llama-3.2-3B", "loras": 4, "rank": 16},
    {"model": "Llama-3.2-3B", "loras": 4, "rank": 64},
    {"model": "Llama-3.2-3B", "quantization": "Fp8"},
    {"model": "Llama-3.2-3B", "quantization": "Fp8", "loras": 4, "rank": 64},
    {"model": "Qwen3-8B", "loras": 4, "rank": 64},
    {"model": "Qwen3-8B", "quantization": "Fp8", "loras": 4, "rank": 16},
    {"model": "Llama-3.2-3B", "loras": 4, "rank": 16, "graphs": True},
)
LENGTH, SHARE = 4096, 0.5
BATCH_TOKENS, BATCH_REQUESTS = 8192, 256
USED = re.compile(
    r"Actual usage is ([0-9.]+) GiB for weight, ([0-9.]+) GiB for peak activation, ([0-9.]+) GiB for non-torch memory,"
    r" and ([0-9.]+) GiB for CUDAGraph"
)


def predict(setting: dict[str, Any]) -> dict[str, float]:
    """Return the estimate of a setting, in GiB."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = MODELS[setting["model"]]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    tensors = {
        name: TensorInfo(dtype="BF16", shape=tuple(weight.shape), start=0, end=weight.numel() * 2)
        for name, weight in model.named_parameters()
    }
    facts = facts_of(config, tensors.items())
    if facts is None:
        raise RuntimeError("the configuration says too little")
    arguments = [f"--max-num-batched-tokens={BATCH_TOKENS}", *([] if setting.get("graphs") else ["--enforce-eager"])]
    engine = EngineSpec.model_validate(
        {"quantization": setting.get("quantization"), "maxModelLength": LENGTH, "extraArgs": arguments}
    )
    found = estimate(facts, engine, loras=setting.get("loras", 0), rank=setting.get("rank", 0))
    return {
        "loaded": (found.weights + found.adapters) / GIB,
        "weights": found.weights / GIB,
        "adapters": found.adapters / GIB,
        "perToken": found.cache_per_token,
        "work": found.work / GIB,
    }


def serve(setting: dict[str, Any], folder: Path) -> None:
    """Start an engine with one setting and print the size of its cache."""
    from vllm import LLM

    place = folder / setting["model"]
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(MODELS[setting["model"]]))
    lora = {}
    if setting.get("loras"):
        lora = {"enable_lora": True, "max_loras": setting["loras"], "max_lora_rank": setting["rank"]}
    begun = time.monotonic()
    engine = LLM(
        model=str(place),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=LENGTH,
        gpu_memory_utilization=SHARE,
        max_num_batched_tokens=BATCH_TOKENS,
        max_num_seqs=BATCH_REQUESTS,
        enforce_eager=not setting.get("graphs"),
        attention_backend="FLASH_ATTN",
        quantization={"Fp8": "fp8"}.get(setting.get("quantization", "")),
        **lora,
    )
    cache = engine.llm_engine.vllm_config.cache_config
    print("CACHE", cache.num_gpu_blocks, cache.block_size, round(time.monotonic() - begun, 1), flush=True)


def compare(setting: dict[str, Any], text: str) -> dict[str, Any]:
    """Return what the engine reported beside the estimate."""
    answer: dict[str, Any] = {"setting": setting, "predicted": predict(setting)}
    patterns = {
        "loaded": r"Model loading took ([0-9.]+) GiB",
        "cache": r"Available KV cache memory: ([0-9.]+) GiB",
    }
    real = {name: float(found[1]) for name, one in patterns.items() if (found := re.search(one, text))}
    if found := re.search(r"CACHE (\d+) (\d+) ([0-9.]+)", text):
        tokens = int(found[1]) * int(found[2])
        real |= {"tokens": tokens, "startSeconds": float(found[3])}
        if "cache" in real:
            real["perToken"] = real["cache"] * GIB / tokens
    if found := USED.search(text):
        real["work"] = sum(float(found[place]) for place in (2, 3, 4))
    answer["real"] = real
    for name in ("loaded", "perToken", "work"):
        if name in real:
            answer[f"{name}Error"] = round(answer["predicted"][name] / real[name] - 1, 4)
    return answer


def main() -> None:
    """Measure every setting in a process of its own, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/serving-memory"), help="for configurations")
    parser.add_argument("--seconds", type=float, default=3600, help="start no further setting after so many seconds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        serve(json.loads(arguments.one), arguments.folder)
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for setting in SETTINGS:
        if time.monotonic() - begun > arguments.seconds:
            print(f"no time for {setting}", file=sys.stderr)
            continue
        command = [sys.executable, __file__, "--out", str(arguments.out), "--folder", str(arguments.folder)]
        done = subprocess.run(
            [*command, "--one", json.dumps(setting)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        failed = {"setting": setting, "failed": done.stdout[-3000:]}
        result = failed if done.returncode else compare(setting, done.stdout)
        with arguments.out.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(json.dumps(result)[:700], flush=True)


if __name__ == "__main__":
    main()
