"""Reading of safetensors files without a tensor library: header, shapes, finiteness.

The format is 8 bytes of header length (little endian), a JSON header, then raw little-endian data. Read here by
hand because the `safetensors` package cannot give bfloat16 to numpy.
"""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError

MAX_HEADER = 100_000_000
"""Longest header that the format allows, bytes."""
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element of each type that an adapter may have."""


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """One tensor of a file.

    Args:
        dtype: Type as the format names it, such as `F32` or `BF16`.
        shape: Lengths of the axes.
        start: First byte in the file.
        end: Byte after the last in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def header_bytes(path: Path) -> bytes:
    """Return the raw header of a safetensors file, length prefix included.

    Raises:
        ArtifactError: `ADAPTER_INVALID` when the file is not one.
    """
    with path.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
        if not 2 <= length <= min(MAX_HEADER, path.stat().st_size - 8):
            raise ArtifactError(
                Reason.ADAPTER_INVALID, f"{path} is not a safetensors file or was cut short; save it again"
            )
        return prefix + stream.read(length)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Return the tensors of a safetensors file by name, checked against its size.

    Raises:
        ArtifactError: `ADAPTER_INVALID` when header and data do not fit.
    """
    raw = header_bytes(path)
    size = path.stat().st_size
    tensors: dict[str, TensorInfo] = {}
    try:
        for name, entry in json.loads(raw[8:]).items():
            if name == "__metadata__":
                continue
            start, end = (int(offset) + len(raw) for offset in entry["data_offsets"])
            tensors[name] = TensorInfo(
                dtype=str(entry["dtype"]), shape=tuple(int(n) for n in entry["shape"]), start=start, end=end
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(Reason.ADAPTER_INVALID, f"{path} has a broken header ({error}); save it again") from error
    for name, info in tensors.items():
        width = WIDTHS.get(info.dtype)
        expected = info.end - info.start if width is None else math.prod(info.shape) * width
        if not len(raw) <= info.start <= info.end <= size or info.end - info.start != expected:
            raise ArtifactError(Reason.ADAPTER_INVALID, f"{path}: data of {name} is cut short; save it again")
    return tensors


def not_finite(path: Path, tensors: dict[str, TensorInfo]) -> str | None:
    """Return the name of the first tensor that holds NaN or infinity, or None."""
    import numpy as np

    data = np.memmap(path, dtype=np.uint8, mode="r")
    for name, info in tensors.items():
        raw = np.asarray(data[info.start : info.end])
        if info.dtype == "BF16":
            finite = (raw.view("<u2") & 0x7F80) != 0x7F80
        else:
            finite = np.isfinite(raw.view({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[info.dtype]))
        if not bool(finite.all()):
            return name
    return None
