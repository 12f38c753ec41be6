"""The rank of an adapter, from its configuration."""

import json
from pathlib import Path

from whetstone_api.adapter_artifact import CONFIG_FILE


def read_rank(folder: Path) -> int | None:
    """Return the highest rank of any module of an adapter; None where its configuration does not say it.

    Args:
        folder: The adapter's folder. What is wrong with it is the preflight's to tell.
    """
    try:
        config = json.loads((folder / CONFIG_FILE).read_bytes())
        ranks = [config["r"], *(config.get("rank_pattern") or {}).values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return max(ranks) if all(isinstance(rank, int) and rank > 0 for rank in ranks) else None
