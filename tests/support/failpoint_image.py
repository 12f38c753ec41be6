"""A trainer image that kills itself once at a named place."""

from whetstone_dev.cluster import Cluster
from whetstone_dev.commands import run
from whetstone_dev.node import REGISTRY_HOST


def push_trainer_with_failpoint(trainer: str, failpoint: str) -> str:
    """Push an image to the local registry that differs from the trainer by one variable; return its reference.

    Args:
        trainer: Reference of the trainer in the local registry.
        failpoint: Where it kills itself, as `whetstone_trainer.failpoints` names it.
    """
    registry = Cluster().registry
    # The node keeps an image that it has under a tag, so the tag follows the trainer's.
    name = f"whetstone/trainer-dies:{failpoint.replace(':', '-')}-{trainer.rpartition(':')[2]}"
    source = trainer.replace(REGISTRY_HOST, registry, 1)
    container = run(["buildah", "from", "--tls-verify=false", source]).strip()
    try:
        run(["buildah", "config", "--env", f"WHETSTONE_FAILPOINT={failpoint}", container])
        image = run(["buildah", "commit", "--quiet", container]).strip()
    finally:
        run(["buildah", "rm", container])
    compression = ["--compression-format", "zstd", "--compression-level", "1"]
    run(["buildah", "push", "--quiet", "--tls-verify=false", *compression, image, f"docker://{registry}/{name}"])
    run(["buildah", "rmi", image])
    return f"{REGISTRY_HOST}/{name}"
