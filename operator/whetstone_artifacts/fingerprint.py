"""Fingerprint of a base model's folder: cheap enough for every start, strict enough to tell revisions apart."""

import hashlib
from pathlib import Path

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.tensors import header_bytes

MIB = 1 << 20


def model_fingerprint(folder: Path) -> str:
    """Return `sha256:…` over config, tokenizer and, of each weights file, name, size, header, first and last MiB.

    Whole weights files are not read: a base model can have hundreds of gigabytes. A fine-tuned revision changes the
    first or last MiB of its shards for all practical purposes.

    Args:
        folder: A Hugging Face model folder.

    Raises:
        ArtifactError: `BASE_MODEL_NOT_FOUND` when `config.json` or the weights are missing.
    """
    if not (folder / "config.json").is_file():
        raise ArtifactError(
            Reason.BASE_MODEL_NOT_FOUND, f"{folder} has no config.json; correct the uri of the model or fill the volume"
        )
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        raise ArtifactError(
            Reason.BASE_MODEL_NOT_FOUND, f"{folder} has no *.safetensors; save the model as safetensors"
        )
    total = hashlib.sha256()
    for name in ("config.json", "tokenizer.json"):
        path = folder / name
        _add(total, name, path.read_bytes() if path.is_file() else b"")
    for shard in shards:
        size = shard.stat().st_size
        _add(total, shard.name, str(size).encode())
        try:
            _add(total, "header", header_bytes(shard))
        except ArtifactError as error:
            raise ArtifactError(Reason.BASE_MODEL_NOT_FOUND, error.message) from error
        with shard.open("rb") as stream:
            _add(total, "first", stream.read(MIB))
            stream.seek(max(0, size - MIB))
            _add(total, "last", stream.read(MIB))
    return "sha256:" + total.hexdigest()


def _add(total: "hashlib._Hash", name: str, content: bytes) -> None:
    """Add one part with its name and length, so that no two folders run together to the same bytes."""
    total.update(f"{name}\0{len(content)}\0".encode())
    total.update(content)
