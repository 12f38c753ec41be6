"""What serving an adapter costs on a GPU, by the engine's own settings: tokens a second, adapter against base.

One process for each setting, since an engine's LoRA buffers and graphs are fixed at its start. The model has the
architecture of Llama-3.2-3B and random weights: speed and memory do not depend on their values. Base and adapter are
measured in turn within one engine, so their ratio does not depend on the machine's state.

    python bench/lora_cost.py --out build/bench/lora_cost.jsonl
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "torch_dtype": "bfloat16",
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"max_loras": 4, "max_lora_rank": 64},
    {"max_loras": 4, "max_lora_rank": 16},
    {"max_loras": 4, "max_lora_rank": 16, "specialize_active_lora": True},
    {"max_loras": 1, "max_lora_rank": 16},
    {"max_loras": 4, "max_lora_rank": 64, "specialize_active_lora": True},
    {"max_loras": 4, "max_lora_rank": 16, "dual_stream": True},
    {},
)
BATCHES = (1, 64, 256)
PROMPT_TOKENS, NEW_TOKENS, ROUNDS, RANK = 256, 128, 3, 16


def write_model(folder: Path) -> None:
    """Write a model's configuration; its weights are made up by the engine."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL))


def write_adapter(folder: Path) -> None:
    """Write an adapter of rank 16 on all linear layers, with random weights."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    hidden, wide = MODEL["hidden_size"], MODEL["intermediate_size"]
    kv = MODEL["num_key_value_heads"] * MODEL["head_dim"]
    shapes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (hidden, wide),
        "mlp.up_proj": (hidden, wide),
        "mlp.down_proj": (wide, hidden),
    }
    tensors = {}
    for layer in range(MODEL["num_hidden_layers"]):
        for name, (inputs, outputs) in shapes.items():
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(RANK, inputs, dtype=torch.bfloat16) * 0.01
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(outputs, RANK, dtype=torch.bfloat16) * 0.01
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(name.rpartition(".")[2] for name in shapes),
        "base_model_name_or_path": "base",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def start_engine(setting: dict[str, Any], folder: Path) -> Any:
    """Start an engine with one setting."""
    rest = dict(setting)
    if rest.pop("dual_stream", False):
        os.environ["VLLM_LORA_ENABLE_DUAL_STREAM"] = "1"
    from vllm import LLM

    return LLM(
        model=str(folder / "model"),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=1024,
        gpu_memory_utilization=0.85,
        enable_prefix_caching=False,
        attention_backend="FLASH_ATTN",
        cudagraph_capture_sizes=[1, 2, 4, 8, 16, 32, 64, 128, 256],
        enable_lora=bool(rest),
        **rest,
    )


def measure(setting: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return tokens a second of base and adapter by batch size, for an engine with one setting."""
    begun = time.monotonic()
    engine = start_engine(setting, folder)
    answer: dict[str, Any] = {"startSeconds": round(time.monotonic() - begun, 1), "batches": {}}
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    adapter = LoRARequest("tuned", 1, str(folder / "adapter")) if setting else None
    sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False, temperature=0.0)
    source = random.Random(0)

    def speed(batch: int, request: Any) -> float:
        prompts = [
            {"prompt_token_ids": [source.randrange(1000, 100000) for _ in range(PROMPT_TOKENS)]} for _ in range(batch)
        ]
        start = time.monotonic()
        engine.generate(prompts, sampling, lora_request=request, use_tqdm=False)
        return batch * NEW_TOKENS / (time.monotonic() - start)

    for batch in BATCHES:
        for request in (None, adapter):  # the first call compiles kernels
            speed(batch, request)
        rounds = [(speed(batch, None), speed(batch, adapter)) for _ in range(ROUNDS)]
        base, tuned = ([round(one) for one in figures] for figures in zip(*rounds, strict=True))
        figures: dict[str, Any] = {"base": statistics.median(base), "baseAll": base}
        if adapter is not None:
            ratio = round(statistics.median(tuned) / statistics.median(base), 3)
            figures |= {"adapter": statistics.median(tuned), "adapterAll": tuned, "ratio": ratio}
        answer["batches"][str(batch)] = figures
    return answer


def main() -> None:
    """Measure every setting in a process of its own, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/lora-cost"), help="for model and adapter")
    parser.add_argument("--seconds", type=float, default=3600, help="start no further setting after so many seconds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        setting = json.loads(arguments.one)
        result = {"setting": setting, **measure(setting, arguments.folder)}
        with arguments.out.open("a") as out:
            out.write(json.dumps(result) + "\n")
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_model(arguments.folder / "model")
    write_adapter(arguments.folder / "adapter")
    begun, longest = time.monotonic(), 0.0
    for setting in SETTINGS:
        if time.monotonic() - begun + longest > arguments.seconds:
            print(f"no time for {setting}", file=sys.stderr)
            continue
        start = time.monotonic()
        command = [sys.executable, __file__, "--out", str(arguments.out), "--folder", str(arguments.folder)]
        code = subprocess.run([*command, "--one", json.dumps(setting)], check=False).returncode
        longest = max(longest, time.monotonic() - start)
        print(f"{setting}: exit {code}, {time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
