"""Shapes of models that tests estimate for."""

from whetstone_api.model_facts import ModelFacts

LLAMA_3B = ModelFacts(
    parameters=3_212_749_824,
    weight_bytes=2 * 3_212_749_824,
    linear_parameters=2_818_572_288,
    dtype="bfloat16",
    layers=28,
    hidden=3072,
    inner=8192,
    heads=24,
    kv_heads=8,
    head_width=128,
    vocabulary=128256,
    max_length=131072,
    cached_layers=28,
)
