"""Other names for images: where a cluster pulls them from instead of where a task's author put them."""

from dataclasses import dataclass
from typing import Final

from whetstone_api.benchmark_suite import ImageRewriting

_HUB: Final = "docker.io"
_OFFICIAL: Final = "library"


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """An image under its new name."""

    reference: str
    mapped: bool
    """Whether the map decided: then the content may be another, which the user alone knows."""


def rewrite(image: str, rewriting: ImageRewriting | None) -> Rewritten:
    """Return where an image is pulled from.

    An entry of the map for exactly this reference decides; else the prefix is put before the whole name, without the
    host of Docker Hub, whose official images get their folder `library` as in every mirror. A reference that starts
    with the prefix stays.

    Args:
        image: Reference as a task names it.
        rewriting: The rule; None leaves all as they are.
    """
    if rewriting is None:
        return Rewritten(reference=image, mapped=False)
    replaced = (rewriting.map or {}).get(image)
    if replaced is not None:
        return Rewritten(reference=replaced, mapped=True)
    prefix = (rewriting.prefix or "").rstrip("/")
    if not prefix or image.startswith(f"{prefix}/"):
        return Rewritten(reference=image, mapped=False)
    return Rewritten(reference=f"{prefix}/{_path(image)}", mapped=False)


def _path(image: str) -> str:
    head, slash, rest = image.partition("/")
    if not slash:
        return f"{_OFFICIAL}/{image}"
    if head in (_HUB, f"index.{_HUB}"):
        return rest if "/" in rest else f"{_OFFICIAL}/{rest}"
    return image
