"""What decides how much memory a base model takes when it is served: read from its folder, told by the sidecar."""

from whetstone_api.wire import WireModel


class ModelFacts(WireModel):
    """Sizes of a decoder model, as its `config.json` and the headers of its weights say."""

    parameters: int
    """Numbers in the weights; of packed 4-bit weights, the packed ones."""
    weight_bytes: int
    """Bytes of the weights as they are stored."""
    linear_parameters: int
    """Numbers in the matrices of the layers, which quantization at start converts."""
    dtype: str
    """Precision of the checkpoint: float32, bfloat16 or float16."""
    quantization: str | None = None
    """How the checkpoint is quantized (`awq`, `gptq`, `fp8`, ...); None for a plain one."""
    layers: int
    hidden: int
    """Width of the hidden state."""
    inner: int
    """Width inside the feed-forward part."""
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    max_length: int
    """Longest context that the model knows, in tokens."""
    cached_layers: int
    """Layers that keep keys and values of the whole context; those of a sliding window or a state are left out."""
