"""Which field helps an engine that ends again and again: told from how it ended and its last words. Pure."""

ENGINE = "engine"
OUT_OF_MEMORY = "OOMKilled"
_MEMORY = ("memory is too small", "does not fit")
"""In advice that an estimate of the memory helps to follow."""
_ADVICE = (
    (
        ("CUDA out of memory", "torch.OutOfMemoryError", "No available memory for the cache blocks"),
        "the accelerator's memory is too small: lower spec.engine.maxModelLength or spec.adapterCapacity.maxRank",
    ),
    (
        ("max seq len", "is larger than the maximum number of tokens that can be stored in KV cache"),
        "the context does not fit beside the weights: lower spec.engine.maxModelLength",
    ),
    (
        ("unrecognized arguments", "error: argument "),
        "the engine does not know an argument: check spec.engine.extraArgs against the version of spec.engine.image",
    ),
    (
        ("No space left on device",),
        "the pod's disk is full: free space on the node, or on the claim that the message names",
    ),
)


def advise(*, container: str, cause: str, log: str, estimate: str = "") -> str:
    """Return what to do about a container that ended, empty when nothing is known.

    Args:
        container: Its name; only for the engine are there fields.
        cause: The kubelet's reason for the end, as `OOMKilled`.
        log: Its last lines.
        estimate: What is thought to take the memory, in words; empty where that is not known.
    """
    if container != ENGINE:
        return ""
    told = f" ({estimate})" if estimate else ""
    if cause == OUT_OF_MEMORY:
        return (
            "it used more memory than its limit: raise spec.resources.limits.memory, or lower"
            f" spec.engine.maxModelLength or spec.adapterCapacity{told}"
        )
    advice = next((advice for words, advice in _ADVICE if any(word in log for word in words)), "")
    return advice + (told if any(word in advice for word in _MEMORY) else "")
