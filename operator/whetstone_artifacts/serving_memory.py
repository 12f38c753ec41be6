"""How much memory of an accelerator an engine takes: weights, room for adapters, keys and values, work space. Pure.

The formulas follow what vLLM 0.26 to 0.32 allocates:

- Weights: `Model loading took` in its log. Numbers x bytes of the precision; `fp8` converts the matrices of the layers
  at start and leaves embeddings, head and norms; other quantizations are in the checkpoint as they are.
- Adapters (`vllm/lora/layers`): for every slot, in every wrapped matrix, A (rank x inputs) and B (outputs x rank) in
  the model's precision, at the highest rank whatever the adapter's; embedding and head are wrapped too.
- Keys and values (`FullAttentionSpec` in `vllm/v1/kv_cache_interface.py`): 2 x layers x key heads x head width x bytes
  for every token, in blocks of 16 tokens.
- Work space: what the largest batch needs while it passes a layer, what driver and libraries take, and captured graphs.
  It is the least exact part.

`bench/serving_memory.py` compares them with what vLLM reports; docs/adapter-cost.md has the figures.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_api.engine import Dtype, EngineSpec, Quantization
from whetstone_api.model_facts import ModelFacts

BLOCK_TOKENS = 16
"""Tokens of a block of the cache."""
BATCH_TOKENS = 8192
"""Default of `--max-num-batched-tokens` for a server on a large accelerator."""
RUNTIME_BYTES = 1 << 28
"""Driver and libraries of one process on one accelerator; 0.22 GiB were measured."""
GRAPH_BYTES = 3 << 29
"""Captured graphs and what compiling adds; 1.2 to 1.9 GiB were measured with the default sizes of batches."""
_WIDTHS = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
_DTYPES = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2, Dtype.FLOAT16: 2}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Memory of one accelerator, in bytes.

    Args:
        weights: The base model.
        adapters: Room for adapters.
        cache_per_token: Keys and values of one token.
        cache_per_request: Keys and values of one request of full length.
        length: That length, in tokens.
        work: What a batch and the runtime need beside.
    """

    weights: int
    adapters: int
    cache_per_token: int
    cache_per_request: int
    length: int
    work: int

    @property
    def least(self) -> int:
        """Bytes that serve one request of full length."""
        return self.weights + self.adapters + self.cache_per_request + self.work

    def requests(self, budget: int) -> int:
        """Return how many requests of full length fit at a time.

        Args:
            budget: Bytes that the engine may take: the accelerator's memory x `gpuMemoryUtilization`.
        """
        free = budget - self.weights - self.adapters - self.work
        return max(0, free // self.cache_per_request) if self.cache_per_request else 0


def estimate(facts: ModelFacts, engine: EngineSpec, *, loras: int, rank: int) -> Estimate:
    """Return what one accelerator of a server holds.

    Args:
        facts: The base model.
        engine: The engine's fields; of its arguments, those that bound a batch.
        loras: Slots for adapters.
        rank: Highest rank of an adapter.
    """
    width = _DTYPES.get(engine.dtype) or _WIDTHS.get(facts.dtype, 2)
    ways = engine.parallelism
    tensor, pipeline = (ways.tensor, ways.pipeline) if ways else (1, 1)
    length = engine.max_model_length or facts.max_length
    per_token = _cache_per_token(facts, width=_cache_width(engine, width), tensor=tensor, pipeline=pipeline)
    return Estimate(
        weights=_weights(facts, engine, width=width) // (tensor * pipeline),
        adapters=loras * rank * width * _adapter_numbers(facts, tensor=tensor, pipeline=pipeline),
        cache_per_token=per_token,
        cache_per_request=per_token * BLOCK_TOKENS * math.ceil(length / BLOCK_TOKENS),
        length=length,
        work=_work(facts, engine, width=width, tensor=tensor),
    )


def quantity(size: int) -> str:
    """Return a size in bytes as a Kubernetes quantity with two decimals."""
    for unit, name in ((1 << 30, "Gi"), (1 << 20, "Mi")):
        if size >= unit:
            return f"{size / unit:.2f}{name}"
    return f"{size / 1024:.2f}Ki"


def _weights(facts: ModelFacts, engine: EngineSpec, *, width: int) -> int:
    if facts.quantization is not None:
        return facts.weight_bytes
    if engine.quantization is Quantization.FP8:
        return facts.linear_parameters + (facts.parameters - facts.linear_parameters) * width
    return facts.parameters * width


def _cache_width(engine: EngineSpec, width: int) -> int:
    """Return the bytes of a number in the cache: the model's precision, or 1 with `--kv-cache-dtype=fp8…`."""
    return 1 if _flag(engine.extra_args or (), "--kv-cache-dtype", "auto").startswith("fp8") else width


def _cache_per_token(facts: ModelFacts, *, width: int, tensor: int, pipeline: int) -> int:
    layers = math.ceil(facts.cached_layers / pipeline)
    return 2 * layers * max(1, facts.kv_heads // tensor) * facts.head_width * width


def _adapter_numbers(facts: ModelFacts, *, tensor: int, pipeline: int) -> int:
    """Return the numbers of one slot for each unit of rank: inputs and outputs of every wrapped matrix.

    Of a matrix that is split by its outputs every part has the whole A; of one split by its inputs, the whole B.
    """
    queries, keys = facts.heads * facts.head_width, max(1, facts.kv_heads // tensor) * facts.head_width
    split_outputs = 5 * facts.hidden + queries // tensor + 2 * keys + 2 * facts.inner // tensor
    split_inputs = queries // tensor + facts.inner // tensor + 2 * facts.hidden
    ends = 2 * (facts.vocabulary + facts.hidden)
    return math.ceil(facts.layers / pipeline) * (split_outputs + split_inputs) + ends


def _work(facts: ModelFacts, engine: EngineSpec, *, width: int, tensor: int) -> int:
    arguments = engine.extra_args or ()
    tokens = _number(arguments, "--max-num-batched-tokens", BATCH_TOKENS)
    layer = tokens * (4 * facts.hidden + 3 * facts.inner // tensor) * width
    return layer + RUNTIME_BYTES + (0 if "--enforce-eager" in arguments else GRAPH_BYTES)


def _flag(arguments: Sequence[str], name: str, default: str) -> str:
    for place, argument in enumerate(arguments):
        if argument == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return default


def _number(arguments: Sequence[str], name: str, default: int) -> int:
    text = _flag(arguments, name, "")
    return int(text) if text.isdigit() else default
