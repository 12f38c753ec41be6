"""How much memory of an accelerator the training of a LoRA adapter takes. Pure.

Counted are the tensors that PyTorch keeps, as the libraries that the trainer runs allocate them:

- Weights of the frozen base: numbers x bytes of the precision. NF4 (Dettmers et al., arXiv 2305.14314) holds the
  matrices of the layers in half a byte, a scale byte for every 64 and a 4-byte scale for every 256 of those; Int8
  (arXiv 2208.07339) in a byte and 4 bytes a row. Embeddings, head and norms stay as they are.
- Adapter: rank x (inputs + outputs) numbers for every adapted matrix. With its gradients and Adam's two moments, 16
  bytes a number in float32 (PEFT raises the adapter of a plain base to it); TRL holds that of a quantized base in
  bfloat16, which makes 8.
- Activations (Korthikanti et al., arXiv 2205.05198, counted anew for gated layers with frozen weights): a frozen matrix
  keeps no input, an adapted one does; each norm keeps a float32 copy, the attention kernel its queries, keys, values
  (repeated for every head where rows are padded) and result, the gate its two factors and its result. With
  checkpointing only the input of every layer is kept, and one layer at a time is computed again.
- Loss: TRL's fused head never holds all logits; without it, logits are there in the model's precision, in float32, and
  as gradient.
- Reference of DPO: the weights of a second model, or an adapter without gradients and moments.
- Runtime: driver, libraries and work space of matrix products. It is the least exact part.

`bench/training_memory.py` puts the sums beside published and measured figures; docs/training-memory.md has the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from whetstone_api.model_facts import ModelFacts
from whetstone_api.training_plan import BaseQuantization

RUNTIME_BYTES = 1 << 29
"""Driver, libraries and their work space."""
HEAD_TILE_BYTES = 1 << 28
"""Logits that the fused head holds at a time, with their gradient."""
HEAD_TOKENS, HEAD_COLUMNS = 4096, 32768
"""Size of such a tile in TRL's head."""
CPU_HEAD_TILES = 8.25
"""Copies of a tile that its backward pass holds where plain operations compute it, as on CPUs: read in TRL's code. One
copy of all logits more was measured (bench/training_cpu.py)."""
CPU_RUNTIME_BYTES = 608 << 20
"""Interpreter and libraries in main memory, without pages of files: bench/training_cpu.py measured 570 to 610 MiB."""
CPU_LIBRARY_BYTES = 1 << 29
"""The least that interpreter and libraries take of it."""
LOGIT_BYTES = 12
"""Bytes of one logit without the fused head: in bfloat16, as float32, its softmax, and its gradient in bfloat16."""
NORM_BYTES = 4
"""Bytes of a number that a norm keeps."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
ADAM_BYTES = 4
"""Copies of an adapter's number: itself, its gradient, two moments."""
_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
GATHERED_LAYERS = 2
"""Layers that a sharded training holds whole at a time: the one at work and the next one."""


@dataclass(frozen=True, kw_only=True)
class TrainingShape:
    """What decides the memory of a training, beside the model.

    Args:
        micro_batch: Rows of one forward pass.
        length: Tokens of each of them, padding included.
        sides: Sequences of that length that a row is: 2 for a pair.
        rank: Rank of the adapter.
        targets: Names of the adapted modules; None for all linear layers.
        dropout: Whether there is dropout on the adapter's input.
        checkpointing: Whether activations are computed again in the backward pass.
        quantization: How the base model is held; None for as it is computed.
        width: Bytes of a number in the computation: 2 on accelerators, 4 on CPUs.
        on_cpu: Whether it is main memory that is counted.
        fused_loss: Whether the loss is computed without holding all logits.
        fused_attention: Whether the attention kernel holds no matrix of length x length.
        shards: Devices that share the weights (FSDP).
        reference: Bytes of what DPO measures gains against, beside the model that is trained: a second model, or a
            frozen adapter. Its passes keep nothing.
        input_casts: Whether every adapted matrix keeps a copy of its input in the computation's precision, as PEFT
            does for an adapter in float32 when nothing tells it not to; ours tells it.
    """

    micro_batch: int
    length: int
    rank: int
    sides: int = 1
    targets: Sequence[str] | None = None
    dropout: bool = False
    checkpointing: bool = False
    quantization: BaseQuantization | None = None
    width: int = 2
    on_cpu: bool = False
    fused_loss: bool = True
    fused_attention: bool = True
    shards: int = 1
    reference: int = 0
    input_casts: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of one forward pass."""
        return self.micro_batch * self.sides * self.length


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Memory of one device, in bytes.

    Args:
        weights: The frozen base model.
        adapter: The adapter with gradients and moments.
        activations: What the forward pass keeps for the backward pass.
        layer: What one layer needs beside, while it is computed again or passed backwards.
        loss: Logits and their gradient.
        runtime: Driver and libraries.
        reference: What DPO measures gains against.
    """

    weights: int
    adapter: int
    activations: int
    layer: int
    loss: int
    runtime: int
    reference: int = 0

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return sum(self.parts().values())

    @property
    def certain(self) -> int:
        """What a training on a CPU surely holds at a time, whatever its rows are."""
        return self.weights + self.adapter + self.reference + CPU_LIBRARY_BYTES

    def parts(self) -> dict[str, int]:
        """Return the parts by name, in bytes; a reference only where there is one."""
        names = ("weights", "adapter", "activations", "layer", "loss", "runtime")
        parts = {name: getattr(self, name) for name in names}
        return {**parts, "reference": self.reference} if self.reference else parts


@dataclass(frozen=True, kw_only=True)
class _Module:
    """A matrix of a layer: what goes in, what comes out, and which of the layer's values it reads."""

    inputs: int
    outputs: int
    reads: str


def is_certain(targets: Sequence[str] | None) -> bool:
    """Return whether the adapted modules are known, so that the estimate may decide against a training."""
    return {target.rsplit(".", 1)[-1] for target in targets or ()} <= set(_MODULES)


def estimate_training(facts: ModelFacts, shape: TrainingShape) -> TrainingMemory:
    """Return what one device of a training holds.

    Args:
        facts: The base model.
        shape: The adapter and the forward pass.
    """
    adapted = _adapted(facts, shape.targets)
    kept = shape.tokens * _kept_per_token(facts, shape, adapted)
    backward = shape.tokens * shape.width * (3 * facts.inner + 4 * facts.hidden)
    inputs = shape.tokens * facts.hidden * shape.width
    gathered = GATHERED_LAYERS * facts.linear_parameters // facts.layers * shape.width if shape.shards > 1 else 0
    dequantized = facts.inner * facts.hidden * shape.width if shape.quantization else 0
    return TrainingMemory(
        weights=training_weights(facts, shape) // shape.shards + gathered,
        adapter=ADAM_BYTES * frozen_adapter(facts, shape),
        activations=facts.layers * (inputs if shape.checkpointing else kept),
        layer=backward + dequantized + (kept if shape.checkpointing else 0),
        loss=_loss(facts, shape),
        runtime=CPU_RUNTIME_BYTES if shape.on_cpu else RUNTIME_BYTES,
        reference=shape.reference,
    )


def frozen_adapter(facts: ModelFacts, shape: TrainingShape) -> int:
    """Return the bytes of an adapter of this rank and these modules that is not trained."""
    sides = sum(module.inputs + module.outputs for module in _adapted(facts, shape.targets))
    return facts.layers * shape.rank * sides * _adapter_width(shape)


def training_weights(facts: ModelFacts, shape: TrainingShape) -> int:
    """Return the bytes of the frozen base model."""
    if facts.quantization is not None:
        return facts.weight_bytes
    rest = (facts.parameters - facts.linear_parameters) * shape.width
    if shape.quantization is BaseQuantization.NF4:
        return int(facts.linear_parameters * NF4_BYTES) + rest
    if shape.quantization is BaseQuantization.INT8:
        return facts.linear_parameters + 4 * facts.linear_parameters // facts.hidden + rest
    return facts.linear_parameters * shape.width + rest


def _modules(facts: ModelFacts) -> dict[str, _Module]:
    hidden, inner = facts.hidden, facts.inner
    queries, keys = facts.heads * facts.head_width, facts.kv_heads * facts.head_width
    return {
        "q_proj": _Module(inputs=hidden, outputs=queries, reads="attention"),
        "k_proj": _Module(inputs=hidden, outputs=keys, reads="attention"),
        "v_proj": _Module(inputs=hidden, outputs=keys, reads="attention"),
        "o_proj": _Module(inputs=queries, outputs=hidden, reads="result"),
        "gate_proj": _Module(inputs=hidden, outputs=inner, reads="feedForward"),
        "up_proj": _Module(inputs=hidden, outputs=inner, reads="feedForward"),
        "down_proj": _Module(inputs=inner, outputs=hidden, reads="product"),
    }


def _adapted(facts: ModelFacts, targets: Sequence[str] | None) -> list[_Module]:
    """Return the adapted matrices of a layer; names that are not known count as all of them."""
    modules = _modules(facts)
    names = {target.rsplit(".", 1)[-1] for target in targets or ()}
    if not names or not is_certain(targets):
        return list(modules.values())
    return [module for name, module in modules.items() if name in names]


def _adapter_width(shape: TrainingShape) -> int:
    return 2 if shape.quantization else 4


def _kept_per_token(facts: ModelFacts, shape: TrainingShape, adapted: Sequence[_Module]) -> int:
    """Return the bytes that one layer keeps of one token without checkpointing."""
    width, queries, keys = shape.width, facts.heads * facts.head_width, facts.kv_heads * facts.head_width
    norms = 2 * NORM_BYTES * facts.hidden
    # Rows of one pass are padded to one length, and with the mask of that PyTorch's kernel takes no grouped keys.
    held = queries if shape.micro_batch * shape.sides > 1 and shape.fused_attention else keys
    attention = width * 2 * (queries + held)
    if not shape.fused_attention:
        # Softmax in float32, and its result in the precision of the computation where that is another.
        attention += facts.heads * shape.length * (NORM_BYTES + (width if width != NORM_BYTES else 0))
    gate = width * 3 * facts.inner
    return norms + attention + gate + _adapter_inputs(shape, adapted)


def _adapter_inputs(shape: TrainingShape, adapted: Sequence[_Module]) -> int:
    """Return the bytes that the adapter keeps of one token in one layer.

    Matrices that read the same value share it, and the attention kernel keeps its result anyway, but where dropout or
    a cast gives each its own copy.
    """
    if shape.dropout or shape.input_casts:
        inputs = sum(module.inputs for module in adapted)
    else:
        inputs = sum({module.reads: module.inputs for module in adapted if module.reads != "result"}.values())
    # What is dropped: a byte each; PyTorch keeps it in the precision of the computation on CPUs.
    mask = sum(module.inputs for module in adapted) * (shape.width if shape.on_cpu else 1) if shape.dropout else 0
    return shape.width * (inputs + shape.rank * len(adapted)) + mask


def _loss(facts: ModelFacts, shape: TrainingShape) -> int:
    if shape.fused_loss and shape.on_cpu:
        tile = min(shape.tokens, HEAD_TOKENS) * min(facts.vocabulary, HEAD_COLUMNS) * shape.width
        logits = shape.tokens * facts.vocabulary * shape.width
        return int(CPU_HEAD_TILES * tile) + logits + 2 * shape.tokens * facts.hidden * shape.width
    if shape.fused_loss:
        return HEAD_TILE_BYTES + 2 * shape.tokens * facts.hidden * shape.width
    return shape.tokens * facts.vocabulary * LOGIT_BYTES
